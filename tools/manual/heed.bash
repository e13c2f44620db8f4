# bash completion of heed; written by tools/make_manual.py
_heed()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options=
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W 'run info explain check help --help --version' -- "$word"))
        return
    fi
    case ${COMP_WORDS[1]}:$before in
    run:--query)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--key)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--value)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--out)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--layout)
        COMPREPLY=($(compgen -W 'bhsd bshd' -- "$word")); return ;;
    run:--dtype)
        COMPREPLY=($(compgen -W 'f32 f16 bf16' -- "$word")); return ;;
    run:--kv-type)
        COMPREPLY=($(compgen -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl' -- "$word")); return ;;
    run:--k-type)
        COMPREPLY=($(compgen -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl' -- "$word")); return ;;
    run:--v-type)
        COMPREPLY=($(compgen -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl' -- "$word")); return ;;
    run:--accuracy)
        COMPREPLY=($(compgen -W 'exact bf16 split int8' -- "$word")); return ;;
    run:--q-offset)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--kv-len)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--mask)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--bias)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--mask-from)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--segments)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--ranges)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--key-blocks)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--alibi)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--sinks)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--lse)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--weights)
        COMPREPLY=($(compgen -f -- "$word")); return ;;
    run:--scores)
        COMPREPLY=($(compgen -W 'raw softcapped biased' -- "$word")); return ;;
    explain:--dtype)
        COMPREPLY=($(compgen -W 'f32 f16 bf16' -- "$word")); return ;;
    explain:--kv-type)
        COMPREPLY=($(compgen -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl' -- "$word")); return ;;
    explain:--k-type)
        COMPREPLY=($(compgen -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl' -- "$word")); return ;;
    explain:--v-type)
        COMPREPLY=($(compgen -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl' -- "$word")); return ;;
    explain:--accuracy)
        COMPREPLY=($(compgen -W 'exact bf16 split int8' -- "$word")); return ;;
    explain:--scores)
        COMPREPLY=($(compgen -W 'raw softcapped biased' -- "$word")); return ;;
    check:--plugin-path)
        COMPREPLY=($(compgen -d -- "$word")); return ;;
    esac
    case ${COMP_WORDS[1]} in
    help) COMPREPLY=($(compgen -W 'run info explain check' -- "$word")); return ;;
    run) options='--query --key --value --out --layout --dtype --scale --softcap --causal --window --kv-type --k-type --v-type --accuracy --threads --backend --q-offset --kv-len --mask --bias --mask-from --segments --ranges --key-blocks --block --alibi --sinks --lse --weights --scores --heatmap --explain --help' ;;
    info) options='--json --help' ;;
    explain) options='--batch --q-heads --kv-heads --q-len --kv-len --qk-dim --v-dim --dtype --scale --softcap --causal --window --kv-type --k-type --v-type --accuracy --threads --backend --q-offset --lens --mask --bias --mask-from --ranges --block --alibi --sinks --lse --weights --scores --reproducible-chunks --json --help' ;;
    check) options='--backend --plugin-path --filter --dtype --accuracy --quick --seed --threads --no-refusals --may-refuse --at-least --brief --list --help' ;;
    esac
    COMPREPLY=($(compgen -W "$options" -- "$word"))
}
complete -o filenames -F _heed heed

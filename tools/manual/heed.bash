# bash completion of heed; written by tools/make_manual.py
_heed_reply()
{
    mapfile -t COMPREPLY < <(compgen "${@:2}" -- "$1")
}
_heed_files()
{
    compopt -o filenames 2>/dev/null
    _heed_reply "$@"
}
_heed()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} first='' options=''
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        _heed_reply "$word" -W 'run info explain check help --help --version'
        return
    fi
    if [ "$word" = = ]; then
        word='' before+='='
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD-2]}=
    elif [ "$COMP_CWORD" -gt 3 ]; then
        first=${COMP_WORDS[COMP_CWORD-2]}
        [ "$first" != = ] || first=${COMP_WORDS[COMP_CWORD-3]}
    fi
    case ${COMP_WORDS[1]}:$before in
    run:--query | run:--query=)
        _heed_files "$word" -f; return ;;
    run:--key | run:--key=)
        _heed_files "$word" -f; return ;;
    run:--value | run:--value=)
        _heed_files "$word" -f; return ;;
    run:--out | run:--out=)
        _heed_files "$word" -f; return ;;
    run:--layout | run:--layout=)
        _heed_reply "$word" -W 'bhsd bshd'; return ;;
    run:--dtype | run:--dtype=)
        _heed_reply "$word" -W 'f32 f16 bf16'; return ;;
    run:--scale | run:--scale=)
        return ;;
    run:--softcap | run:--softcap=)
        return ;;
    run:--causal=)
        _heed_reply "$word" -W 'bottom-right'; return ;;
    run:--window | run:--window=)
        return ;;
    run:--kv-type | run:--kv-type=)
        _heed_reply "$word" -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl'; return ;;
    run:--k-type | run:--k-type=)
        _heed_reply "$word" -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl'; return ;;
    run:--v-type | run:--v-type=)
        _heed_reply "$word" -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl'; return ;;
    run:--accuracy | run:--accuracy=)
        _heed_reply "$word" -W 'exact bf16 split int8'; return ;;
    run:--threads | run:--threads=)
        return ;;
    run:--backend | run:--backend=)
        return ;;
    run:--q-offset | run:--q-offset=)
        _heed_files "$word" -f; return ;;
    run:--kv-len | run:--kv-len=)
        _heed_files "$word" -f; return ;;
    run:--mask | run:--mask=)
        _heed_files "$word" -f; return ;;
    run:--bias | run:--bias=)
        _heed_files "$word" -f; return ;;
    run:--mask-from | run:--mask-from=)
        _heed_files "$word" -f; return ;;
    run:--segments | run:--segments=)
        _heed_files "$word" -f; return ;;
    run:--ranges | run:--ranges=)
        _heed_files "$word" -f; return ;;
    run:--key-blocks | run:--key-blocks=)
        _heed_files "$word" -f; return ;;
    run:--block | run:--block=)
        return ;;
    run:--alibi | run:--alibi=)
        _heed_files "$word" -f; return ;;
    run:--sinks | run:--sinks=)
        _heed_files "$word" -f; return ;;
    run:--lse | run:--lse=)
        _heed_files "$word" -f; return ;;
    run:--weights | run:--weights=)
        _heed_files "$word" -f; return ;;
    run:--scores | run:--scores=)
        _heed_reply "$word" -W 'raw softcapped biased'; return ;;
    run:--heatmap=)
        return ;;
    explain:--batch | explain:--batch=)
        return ;;
    explain:--q-heads | explain:--q-heads=)
        return ;;
    explain:--kv-heads | explain:--kv-heads=)
        return ;;
    explain:--q-len | explain:--q-len=)
        return ;;
    explain:--kv-len | explain:--kv-len=)
        return ;;
    explain:--qk-dim | explain:--qk-dim=)
        return ;;
    explain:--v-dim | explain:--v-dim=)
        return ;;
    explain:--dtype | explain:--dtype=)
        _heed_reply "$word" -W 'f32 f16 bf16'; return ;;
    explain:--scale | explain:--scale=)
        return ;;
    explain:--softcap | explain:--softcap=)
        return ;;
    explain:--causal=)
        _heed_reply "$word" -W 'bottom-right'; return ;;
    explain:--window | explain:--window=)
        return ;;
    explain:--kv-type | explain:--kv-type=)
        _heed_reply "$word" -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl'; return ;;
    explain:--k-type | explain:--k-type=)
        _heed_reply "$word" -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl'; return ;;
    explain:--v-type | explain:--v-type=)
        _heed_reply "$word" -W 'f32 f16 bf16 i8 u8 u4 f8_e4m3 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl'; return ;;
    explain:--accuracy | explain:--accuracy=)
        _heed_reply "$word" -W 'exact bf16 split int8'; return ;;
    explain:--threads | explain:--threads=)
        return ;;
    explain:--backend | explain:--backend=)
        return ;;
    explain:--bias=)
        _heed_reply "$word" -W 'f32 f16 bf16'; return ;;
    explain:--ranges | explain:--ranges=)
        return ;;
    explain:--block | explain:--block=)
        return ;;
    explain:--scores | explain:--scores=)
        _heed_reply "$word" -W 'raw softcapped biased'; return ;;
    check:--backend | check:--backend=)
        return ;;
    check:--plugin-path | check:--plugin-path=)
        _heed_files "$word" -d; return ;;
    check:--filter | check:--filter=)
        return ;;
    check:--dtype | check:--dtype=)
        return ;;
    check:--accuracy | check:--accuracy=)
        return ;;
    check:--seed | check:--seed=)
        return ;;
    check:--threads | check:--threads=)
        return ;;
    check:--may-refuse | check:--may-refuse=)
        return ;;
    check:--at-least | check:--at-least=)
        return ;;
    esac
    case ${COMP_WORDS[1]}:$first in
    run:--scores) _heed_files "$word" -f; return ;;
    esac
    case ${COMP_WORDS[1]} in
    help) _heed_reply "$word" -W 'run info explain check'; return ;;
    run) options='--query --key --value --out --layout --dtype --scale --softcap --causal --window --kv-type --k-type --v-type --accuracy --threads --backend --q-offset --kv-len --mask --bias --mask-from --segments --ranges --key-blocks --block --alibi --sinks --lse --weights --scores --heatmap --explain --help' ;;
    info) options='--json --help' ;;
    explain) options='--batch --q-heads --kv-heads --q-len --kv-len --qk-dim --v-dim --dtype --scale --softcap --causal --window --kv-type --k-type --v-type --accuracy --threads --backend --q-offset --lens --mask --bias --mask-from --ranges --block --alibi --sinks --lse --weights --scores --reproducible-chunks --json --help' ;;
    check) options='--backend --plugin-path --filter --dtype --accuracy --quick --seed --threads --no-refusals --may-refuse --at-least --brief --list --help' ;;
    esac
    _heed_reply "$word" -W "$options"
}
complete -F _heed heed

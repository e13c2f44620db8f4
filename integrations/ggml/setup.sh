# Builds what the setup ggml of tools/test needs. tools/test sources this file and sets $out, $logs, $werror
# and build().

ggml_source()
{
    python3 integrations/ggml/fetch.py "$out/ggml-source"
}

# ggml_module    builds the backend and prints where: in the gcc build, if there is one, which has all of Heed
# already; else in a build of its own, with only what the backend needs
ggml_module()
{
    local option="-Dggml=$out/ggml-source/llama.cpp/ggml"
    if [ -f "$out/gcc/build.ninja" ]; then
        CC=gcc CXX=g++ build gcc && CC=gcc CXX=g++ build gcc "$option" && ggml_in=gcc
    else
        CC=gcc CXX=g++ build ggml -Dtests=disabled -Dtools=disabled -Dexamples=disabled -Donednn=disabled "$option" &&
            ggml_in=ggml
    fi
}

# ggml_few NAME FEATURES    makes a plugin NAME in $to: the backend naive without these features
ggml_few()
{
    gcc -O2 -std=c17 -Wall -Wextra ${ggml_werror:-} -fPIC -shared -Iinclude "-DFEW_NAME=\"$1\"" "-DFEW_LACKS=$2" \
        integrations/ggml/few_plugin.c backends/naive/*.c -lm -o "$to/heed_$1.so"
}

# Builds only what the programs need of llama.cpp. Its own library does no arithmetic and may be slow.
# test-llama-archs, which writes models, needs a few functions of the "common" library: the linker leaves out
# the others and what only they would need.
ggml_programs()
{
    local source=$out/ggml-source/llama.cpp to=$PWD/$out/ggml-build program test_ops status
    local libraries=(-L"$to/bin" "-Wl,-rpath,$to/bin" -lllama -lggml -lggml-base -lggml-cpu -lm)
    local include=(-I"$source/include" -I"$source/ggml/include" -I"$source/ggml/src")
    local archs="tests/test-llama-archs common/common common/log common/json" objects=()
    mkdir -p "$to"
    echo 'if(PROJECT_NAME STREQUAL CMAKE_PROJECT_NAME)
  cmake_language(DEFER CALL target_compile_options llama PRIVATE -O1)
endif()' >"$to/quick.cmake"
    cmake -S "$source" -B "$to" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_PROJECT_INCLUDE=$to/quick.cmake" \
        -DGGML_AMX_TILE=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_OPENSSL=OFF && ninja -C "$to" ggml llama || return
    g++ -O1 -w -std=c++17 "${include[@]}" "$source/tests/test-backend-ops.cpp" "${libraries[@]}" -o "$to/test-backend-ops" &
    test_ops=$!
    for program in $archs; do
        objects+=("$to/$(basename "$program").o")
        g++ -O0 -w -std=c++17 -ffunction-sections -fdata-sections "${include[@]}" -I"$source/common" -I"$source/src" \
            -I"$source/vendor" -c "$source/$program.cpp" -o "${objects[-1]}" || break
    done && g++ -Wl,--gc-sections "${objects[@]}" "${libraries[@]}" -o "$to/test-llama-archs"
    status=$?
    wait $test_ops && [ $status = 0 ] || return
    ggml_few no_causal HEED_HAS_CAUSAL && ggml_few only_bias 'HEED_HAS_CAUSAL | HEED_HAS_RANGES' || return
    for program in models sequences op_test product_test; do
        gcc -O2 -std=c17 -D_DEFAULT_SOURCE -Wall -Wextra ${ggml_werror:-} "${include[@]}" "integrations/ggml/$program.c" \
            integrations/ggml/play.c "${libraries[@]}" -o "$to/$program" || return
    done
}

# Makes small models by ggml's own program, of one architecture for each kind of attention, and one model of
# each type whose products are large enough to be claimed. Those have one layer: rounding x to bf16 makes
# errors, ggml's own, that each layer spreads, so that another token could be chosen by chance.
ggml_models()
{
    local to=$out/ggml-build/gguf type
    rm -rf "$to" && mkdir -p "$to" || return
    "$out/ggml-build/test-llama-archs" -s 1 -a '^(llama|gemma2|gemma3|gpt-oss|qwen3|deepseek2|mpt)$' -o "$to/" || return
    for type in f32 f16 bf16; do
        python3 integrations/ggml/make_gguf.py "$to/products-$type.gguf" --layers 1 --heads 8 --kv-heads 2 --dim 64 \
            --ffn 1024 --vocab 512 --type $type || return
    done
}

# Makes a folder for run.sh in which everything is built, and llama-bench only says which backends it had:
# those in $BACKENDS.
ggml_bench()
{
    local to=$out/ggml-build/bench
    mkdir -p "$to/llama.cpp" "$to/llama/bin" "$to/heed" || return
    echo 'build llama-bench: phony' | tee "$to/llama/build.ninja" >"$to/heed/build.ninja"
    printf '#!/bin/sh\necho "heed: a reason" >&2\n%s\n' \
        'echo "[{\"n_prompt\": 512, \"avg_ts\": 3, \"backends\": \"$BACKENDS\"}]"' >"$to/llama/bin/llama-bench"
    chmod +x "$to/llama/bin/llama-bench"
}

# The numbers of claimed cases are those of this version of ggml: fewer, or none, is a failure.
ggml_cases()
{
    local built=$out/ggml-build run="GGML_BACKEND_PATH=$out/$ggml_in/integrations/ggml/libggml-heed.so $out/ggml-build"
    local few="HEED_PLUGIN_PATH=$PWD/$built HEED_BACKEND"
    local bench="HEED_GGML_BUILD=$PWD/$built/bench integrations/ggml/bench.py README.md --depths 0 --turns 1"
    local ops="$run/test-backend-ops" products="HEED_GGML=matmul:all $run/test-backend-ops"
    each ggml "$run/models $built/gguf/*.gguf" "$run/op_test" "$run/product_test" \
        "HEED_BACKEND=naiv $run/op_test few 2>&1 | grep -c \"^heed: backend 'naiv'\\|is not loaded\" | grep -qx 2" \
        "HEED_BACKEND=avx2 HEED_MAX_ISA=baseline $run/op_test few 2>&1 | grep -c \"^heed: .*avx2.*cannot run here\\|is not loaded\" | grep -qx 2" \
        "HEED_GGML=off,foo,matmul $run/op_test few 2>&1 | grep -q \"HEED_GGML has 'foo':\"" \
        "python3 integrations/ggml/bench.py none --turns 0 2>&1 | grep -q 'argument --turns'" \
        "python3 integrations/ggml/bench.py none --depths 0,x 2>&1 | grep -q 'argument --depths'" \
        "python3 integrations/ggml/bench.py none --prompt 0 --generate 0 2>&1 | grep -q 'nothing to measure'" \
        "python3 integrations/ggml/bench.py none 2>&1 | grep -q 'there is no file none'" \
        "python3 integrations/ggml/make_gguf.py $built/none --layers 0 2>&1 | grep -q 'argument --layers'" \
        "python3 integrations/ggml/make_gguf.py $built/none --heads 4 --kv-heads 3 2>&1 | grep -q 'multiple of --kv-heads, 3'" \
        "python3 integrations/ggml/make_gguf.py $built/none --heads 1 --dim 20 --type q8_0 2>&1 | grep -q 'is 20: rows of q8_0'" \
        "BACKENDS=Heed,BLAS $bench | grep -q 'pp512 .* 1.00  1.00 to 1.00'" \
        "BACKENDS=CPU $bench 2>&1 | grep -A 1 'ran without Heed' | grep -q '^heed: a reason'" \
        "HEED_GGML=off BACKENDS=Heed $bench 2>&1 | grep -q 'HEED_GGML=off leaves both'" \
        "$few=no_causal $run/op_test few" "$few=only_bias $run/op_test few" \
        "$run/sequences $built/gguf/llama-dense.gguf $built/gguf/gemma3-dense.gguf $built/gguf/gpt-oss-moe.gguf" \
        "$ops test -b Heed -o FLASH_ATTN_EXT -p 'hsk=(40|72|576),.*nb=(1|3),.*'" \
        "$ops support -b Heed -o FLASH_ATTN_EXT | grep -c ': .*32mSUPPORTED' | grep -qx 5300" \
        "$products test -b Heed -o MUL_MAT" \
        "$products support -b Heed -o MUL_MAT | grep -c ': .*32mSUPPORTED' | grep -qx 127"
}

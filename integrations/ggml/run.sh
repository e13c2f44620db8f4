#!/usr/bin/env bash
# Runs a program of llama.cpp on Heed: fetches llama.cpp and builds it as it is, once, builds the ggml
# backend beside it, and starts the program with the backend loaded.
#
# Usage: integrations/ggml/run.sh PROGRAM ARGUMENT...
#
#        run.sh test-backend-ops -o FLASH_ATTN_EXT -b Heed     ggml's own tests of the operation
#        run.sh llama-bench -m MODEL.gguf -fa on -t 2          speed; flash attention has to be asked for
#        HEED_GGML=off run.sh llama-bench -m MODEL.gguf -fa on the same by ggml alone
#
# HEED_GGML_BUILD (default: build-ggml in the root) is where it is built. CMAKE_ARGS are for cmake.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${HEED_GGML_BUILD:-$root/build-ggml}

if [ $# -eq 0 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
    sed -n '2,/^set -eu/{/^set -eu/d; s/^# \{0,1\}//; p;}' "$0"
    exit 0
fi
program=$1
shift
mkdir -p "$build"
build=$(cd "$build" && pwd) # Meson looks for ggml's headers from another folder

source=$(python3 "$root/integrations/ggml/fetch.py" "$build")
# gcc 12 miscompiles ggml's own kernels for AMX (_tile_loadconfig): they are left out.
[ -e "$build/llama/build.ninja" ] ||
    cmake -S "$source" -B "$build/llama" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_AMX_TILE=OFF \
        -DGGML_AMX_INT8=OFF -DGGML_AMX_BF16=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_SERVER=OFF \
        ${CMAKE_ARGS:-} > "$build/cmake.log" 2>&1 || { tail -20 "$build/cmake.log" >&2; exit 1; }
[ -e "$build/heed/build.ninja" ] ||
    meson setup "$build/heed" "$root" -Dbuildtype=release -Dtests=disabled -Dbench=disabled \
        -Dexamples=disabled -Dggml="$source/ggml" > "$build/meson.log" 2>&1 ||
    { tail -20 "$build/meson.log" >&2; exit 1; }
ninja -C "$build/llama" "$program" > "$build/llama.log" 2>&1 || { tail -20 "$build/llama.log" >&2; exit 1; }
ninja -C "$build/heed" > "$build/heed.log" 2>&1 || { tail -20 "$build/heed.log" >&2; exit 1; }

export GGML_BACKEND_PATH="$build/heed/integrations/ggml/libggml-heed.so"
exec "$build/llama/bin/$program" "$@"

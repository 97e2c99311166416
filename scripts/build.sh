#!/usr/bin/env bash
# Configures and builds a preset: build.sh PRESET [CMAKE-OPTION...] [-- TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
options=() targets=()
while (($#)) && [[ $1 != -- ]]; do options+=("$1"); shift; done
(($# < 2)) || targets=(--target "${@:2}")
if command -v ccache >/dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  # What is the same in two presets or two clones is compiled once: where the folders are is no reason to do it again.
  export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$PWD
fi
cmake --preset "$preset" "${options[@]}"
cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}"

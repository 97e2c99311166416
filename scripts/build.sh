#!/usr/bin/env bash
# Configures and builds a preset: build.sh PRESET [CMAKE-OPTION...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake --preset "$preset" "${launcher[@]}" "$@"
cmake --build --preset "$preset" --parallel "$(nproc)"

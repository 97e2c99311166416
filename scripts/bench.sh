#!/usr/bin/env bash
# Runs the micro-benchmarks of build/release; arguments go to each, for instance --benchmark_filter=launch.
set -euo pipefail
cd "$(dirname "$0")/../build/release"
shopt -s nullglob
benchmarks=(bench/*_bench)
((${#benchmarks[@]})) || { echo 'There are no micro-benchmarks in build/release/bench.' >&2; exit 1; }
for benchmark in "${benchmarks[@]}"; do "$benchmark" "$@"; done

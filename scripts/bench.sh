#!/usr/bin/env bash
# Builds and runs the micro-benchmarks; arguments go to them, for instance --benchmark_filter=launch. For steady figures the
# machine should do nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release -DBERTH_TESTS=ON -DBERTH_BENCH=ON -- shim_bench
exec build/release/bin/shim_bench "$@"

#!/usr/bin/env bash
# The whole suite: the host code under sanitizers, then everything as built for development. Ends with ctest's own last line.
set -euo pipefail
cd "$(dirname "$0")/.."
for preset in asan tsan dev; do scripts/build.sh "$preset" -DBERTH_BENCH=OFF; done
sanitized='unit|wire|fuzz'
ctest --preset asan --parallel "$(nproc)" --label-regex "$sanitized" --no-tests=error
ctest --preset tsan --parallel "$(nproc)" --label-regex unit --no-tests=error
ctest --preset dev --parallel "$(nproc)" --no-tests=error

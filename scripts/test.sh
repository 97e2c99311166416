#!/usr/bin/env bash
# The whole suite: everything as built for development; before it the unit tests of all host code under the address and
# undefined-behaviour sanitizers, and of what has threads under the thread sanitizer. Ends with ctest's own last line.
set -euo pipefail
cd "$(dirname "$0")/.."
threaded=(daemon_test client_test)
scripts/build.sh dev -DBERTH_BENCH=OFF
scripts/build.sh asan -- unit_tests
scripts/build.sh tsan -- "${threaded[@]}"
test_preset() { ctest --preset "$1" --parallel "$(nproc)" --no-tests=error "${@:2}"; }
test_preset asan --label-regex '^unit$'
test_preset tsan --tests-regex "^unit\.($(IFS='|'; echo "${threaded[*]}"))$"
test_preset dev

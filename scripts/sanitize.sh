#!/usr/bin/env bash
# All unit tests of host code under the address and undefined-behaviour sanitizers, and of what has threads under the thread
# sanitizer: `make sanitize`.
set -euo pipefail
cd "$(dirname "$0")/.."
threaded=(daemon_test client_test)
scripts/build.sh asan -- unit_tests
scripts/build.sh tsan -- "${threaded[@]}"
ctest --preset asan --parallel "$(nproc)" --no-tests=error --label-regex '^unit$'
ctest --preset tsan --parallel "$(nproc)" --no-tests=error --tests-regex "^unit\.($(IFS='|'; echo "${threaded[*]}"))$"

#!/usr/bin/env bash
# The whole suite as built for development, after the unit tests of base, policy, client and the simulated GPU under the
# address and undefined-behaviour sanitizers (`make sanitize` has the rest). Ends with ctest's own last line.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitized=(base_test policy_test client_test sim_test)
scripts/build.sh dev -DBERTH_BENCH=OFF
scripts/build.sh asan -- "${sanitized[@]}"
ctest --preset asan --parallel "$(nproc)" --no-tests=error --tests-regex "^unit\.($(IFS='|'; echo "${sanitized[*]}"))$"
ctest --preset dev --parallel "$(nproc)" --no-tests=error

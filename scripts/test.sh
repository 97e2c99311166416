#!/usr/bin/env bash
# The whole suite as built for development, after the unit tests of base, policy, client and the simulated GPU under the
# address and undefined-behaviour sanitizers (`make sanitize` has the rest), and after a short run of the fuzz targets, which
# are left out where there is no clang with a fuzzer. Ends with ctest's own last line.
set -euo pipefail
cd "$(dirname "$0")/.."
sanitized=(base_test policy_test client_test sim_test)
scripts/build.sh dev -DBERTH_BENCH=OFF
scripts/build.sh asan -- "${sanitized[@]}"
has_fuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++-14 -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null
}
if has_fuzzer; then
  scripts/build.sh fuzz -- fuzz_targets
  ctest --preset fuzz --parallel "$(nproc)" --no-tests=error
fi
ctest --preset asan --parallel "$(nproc)" --no-tests=error --tests-regex "^unit\.($(IFS='|'; echo "${sanitized[*]}"))$"
ctest --preset dev --parallel "$(nproc)" --no-tests=error

#!/usr/bin/env bash
# Every shell script of the tree parses, stops at the first error, and pleases shellcheck where that is installed.
set -euo pipefail
cd "$2"
mapfile -t scripts < <(find scripts tests bench packaging .ci examples -name '*.sh' -o -path '.ci/run' 2>/dev/null | sort)
((${#scripts[@]} > 5)) || { echo 'the scripts were not found'; exit 1; }
status=0
for script in "${scripts[@]}"; do
  bash -n "$script" || status=1
  grep -q '^set -e\?uo pipefail$' "$script" || { echo "$script: no 'set -euo pipefail'"; status=1; }
done
if command -v shellcheck >/dev/null; then shellcheck --severity=warning "${scripts[@]}" || status=1; fi
exit $status

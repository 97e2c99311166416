#!/usr/bin/env bash
# run.sh BUILD_FOLDER [OUT_FOLDER]: every scenario on this machine's GPU; logs to OUT_FOLDER, a short table here.
set -uo pipefail
build=$1 out=${2:-.} here=$(dirname "$(readlink -f "$0")") failed=0
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader
for scenario in contract.sh frameworks.py quotas.py overhead.py cards.py daemon.py virtual.py virtual_runtime.py; do
  echo "== $scenario"
  if [ "${scenario##*.}" = py ]; then run=(python3 "$here/$scenario"); else run=(bash "$here/$scenario"); fi
  "${run[@]}" "$build" 2>&1 | tee "$out/$scenario.txt"
  [ "${PIPESTATUS[0]}" = 0 ] || { failed=1; echo "== $scenario FAILED"; }
done
exit $failed

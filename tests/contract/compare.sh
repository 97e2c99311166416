#!/usr/bin/env bash
# compare.sh sim|shim SECTION BUILD_FOLDER: runs a section of the contract and compares its trace with the golden file, or with
# that on the simulated GPU alone where there is none yet.
set -euo pipefail
way=$1 section=$2 build=$3
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BERTH_SIM_DIR=$work/sim BERTH_SIM_MEMORY=8G BERTH_DRIVER=sim BERTH_SOCKET=$work/none
mkdir "$BERTH_SIM_DIR"
export LD_LIBRARY_PATH=$build/lib/berth/$way
if [ "$section" = proc_address ]; then
  "$build/tests/proc_address" | sort > "$work/trace"
  grep -v '^#' "$here/../../src/abi/driver.versions" > "$work/golden"
else
  "$build/tests/contract_trace" "$section" > "$work/trace" || echo "exit $?" >> "$work/trace"
  golden=$here/golden/580.159.04/$section.txt
  if [ -f "$golden" ]; then cp "$golden" "$work/golden"
  else LD_LIBRARY_PATH=$build/lib/berth/sim "$build/tests/contract_trace" "$section" > "$work/golden"; fi
fi
diff -u "$work/golden" "$work/trace"

#!/usr/bin/env bash
# run.sh BUILD OUT [SCENARIOS [SEEDS [LOAD [MODES]]]]: comma-separated lists. Without scenarios: the whole table.
set -uo pipefail
build=$(cd "$1" && pwd) out=$2 here=$(cd "$(dirname "$0")" && pwd)
scenarios=${3:-vision,eager,gemm,longgraph,language,shares2,shares3,shares4} seeds=${4:-1,2,3} load=${5:-0.5} chosen=${6:-}
BERTH_DIR=$(mktemp -d)
export BERTH=$build/bin/berth BERTH_DIR BERTH_SOCKET=$BERTH_DIR/berth.sock
trap 'rm -rf "$BERTH_DIR"' EXIT
mkdir -p "$out"
for scenario in ${scenarios//,/ }; do
  case $scenario in
    shares2) modes=default,berth-equal,berth-3-1 ;;
    shares3) modes=berth-5-3-2 ;;
    shares4) modes=berth-equal ;;
    *) modes=berth ;;
  esac
  python3 "$here/colocate.py" --scenario "$scenario" --modes "${chosen:-$modes}" --modes-file "$here/berth.json" --load "$load" \
    --seeds "$seeds" --out "$out/$scenario-$load.json" 2>&1 | tee -a "$out/table.txt"
done
cp "$BERTH_DIR/daemon.log" "$out/" 2>/dev/null

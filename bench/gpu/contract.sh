#!/usr/bin/env bash
# contract.sh BUILD_FOLDER: the contract on the real driver, plain, through the shim, and through the shim inside a job.
# Plain is compared with the golden files, the others with plain. Exit 1 when anything differs.
set -euo pipefail
build=$(readlink -f "$1") here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d) bad=0
export BERTH_SOCKET=$work/s
"$build/bin/berthd" --idle-seconds 0 & daemon=$!
trap 'kill $daemon; wait $daemon 2>/dev/null || true; rm -rf "$work"' EXIT
version=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)
golden=$here/../../tests/contract/golden/$version
mkdir -p "$work/plain" "$work/shim" "$work/job"
for section in $("$build/tests/contract_trace"); do
  "$build/tests/contract_trace" "$section" > "$work/plain/$section" || true
  env BERTH_SOCKET=/nowhere LD_LIBRARY_PATH="$build/lib/berth/shim:${LD_LIBRARY_PATH:-}" "$build/tests/contract_trace" "$section" > "$work/shim/$section" || true
  "$build/bin/berth" run -m 80% -- "$build/tests/contract_trace" "$section" > "$work/job/$section" || true
  line="$section:"
  if [ -f "$golden/$section.txt" ]; then
    cmp -s "$golden/$section.txt" "$work/plain/$section" && line+=" golden" || { line+=" NOT-GOLDEN"; bad=1; }
  else
    line+=" no-golden"
  fi
  for way in shim job; do
    if cmp -s "$work/plain/$section" "$work/$way/$section"; then
      line+=" $way-same"
    elif [ "$way $section" = "job managed" ]; then
      line+=" job-counts-managed-at-allocation"  # docs/adr/0002
    else
      line+=" $way-DIFFERS" bad=1
      diff "$work/plain/$section" "$work/$way/$section" > "$work/diff" || true
      sed -n '1,6p' "$work/diff"
    fi
  done
  echo "$line"
done
if [ -n "${OUT:-}" ]; then tar czf "$OUT/traces.tgz" -C "$work" plain shim job; fi
exit $bad

#!/usr/bin/env bash
# What `make run` shows, on the simulated GPU: it ends well, says who was refused, and leaves nothing behind, also when ended.
set -euo pipefail
build=$1 demo=$2/scripts/demo.sh
folder=$(mktemp -d)
export TMPDIR=$folder/tmp BERTH_DRIVER=sim
mkdir "$TMPDIR"
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; cat "$folder/log"; exit 1; }
nothing_left() { [[ -z $(ls -A "$TMPDIR") ]] || fail "$1 left $(ls -R "$TMPDIR")"; }

"$demo" "$build" >"$folder/log" 2>&1 || fail 'it did not end well'
for line in 'service .* answered [1-9][0-9]* requests' 'trainer .* did [1-9][0-9.]* steps a second' \
    'greedy .* then cuMemAlloc of 256 MiB answered CUDA_ERROR_OUT_OF_MEMORY' 'greedy: .* was refused: greedy uses' \
    'latecomer: asked for .* left to promise'; do
  grep -q "^  $line" "$folder/log" || fail "no line '$line'"
done
nothing_left 'the demonstration'

"$demo" "$build" >"$folder/log" 2>&1 &
demo_pid=$!
for ((try = 0; try < 600; try++)); do
  grep -q '^service ' "$folder/log" && break
  sleep 0.05
done
kill -TERM "$demo_pid"
wait "$demo_pid" && fail 'it said that all is well after SIGTERM'
nothing_left 'the demonstration, ended,'
still=$(grep -lz "^XDG_RUNTIME_DIR=$TMPDIR/" /proc/[0-9]*/environ 2>/dev/null) || true
[[ -z $still ]] || fail "processes of it still run: $still"

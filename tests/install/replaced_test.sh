#!/usr/bin/env bash
# B37: a new version is installed over the old one while programs run. They go on with the library that they have, the daemon
# serves them on, and the next program gets the new library.
set -euo pipefail
build=$1
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder/run BERTH_SOCKET=$folder/run/berth.sock BERTH_DRIVER=sim BERTH_SIM_DIR=$folder/sim
mkdir -m 700 "$folder/run"
fail() { echo "FAILED: $*"; exit 1; }
run=
finish() {
  exec 9>&- || true
  [[ -z $run ]] || wait "$run" || true
  local exe
  for exe in /proc/[0-9]*/exe; do
    [[ $(readlink "$exe") == "$folder/usr/bin/berthd"* ]] || continue
    kill "$(basename "$(dirname "$exe")")"
    while [[ -e $exe ]]; do sleep 0.05; done
  done
  rm -rf "$folder"
}
trap finish EXIT
install() { cmake --install "$build" --prefix "$folder/usr" >"$folder/log" 2>&1 || { cat "$folder/log"; fail 'install'; }; }
installed=$folder/usr/lib/berth/shim/libcuda.so.1

install
mkfifo "$folder/in" "$folder/out"
"$folder/usr/bin/berth" run -m 3G -n old -- python3 "$(dirname "$0")/../system/guest.py" \
  'start(); say(r=alloc(GIB)[0]); sys.stdin.readline(); say(r=alloc(512 * MIB)[0], over=alloc(2 * GIB)[0], back=info()[0]); hold()' \
  <"$folder/in" >"$folder/out" 2>"$folder/errors" & run=$!
exec 9>"$folder/in" 8<"$folder/out"
read -r -t 60 line <&8 || fail "the program did not start: $(cat "$folder/errors")"
[[ $line == '{"r": 0}' ]] || fail "the program said $line"

# Whatever is older is installed anew.
find "$folder/usr" -type f -exec touch -d '2001-01-01' {} +
before=$(stat -c %i "$installed")
install
[[ $(stat -c %i "$installed") != "$before" ]] || fail 'the library that a program has mapped was written over in place'

echo go >&9
read -r -t 60 line <&8 || fail "the program died: $(cat "$folder/errors")"
[[ $line == '{"r": 0, "over": 2, "back": 0}' ]] || fail "the program said $line"
result=$("$folder/usr/bin/berth" run -m 1G -- "$folder/usr/bin/berth-load" alloc --grow --step 64M --seconds 0 --json | tail -1)
[[ $result == *'"total_bytes":1073741824'* ]] || fail "a new program does not see its quota: $result"
exec 9>&-
wait "$run" || fail "the old program did not end well: $(cat "$folder/errors")"
run=
[[ ! -s $folder/errors ]] || fail "on stderr: $(cat "$folder/errors")"

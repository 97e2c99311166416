#!/usr/bin/env bash
# An installed tree works after being moved, and uninstalling leaves nothing behind and touches nothing else.
set -euo pipefail
build=$1 source=$2
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder/run BERTH_SOCKET=$folder/run/berth.sock BERTH_SIM_DIR=$folder/sim BERTH_DRIVER=sim
mkdir -m 700 "$folder/run"
stop_daemon() {
  local exe
  for exe in /proc/[0-9]*/exe; do
    [[ $(readlink "$exe") == "$folder/moved/bin/berthd" ]] || continue
    kill "$(basename "$(dirname "$exe")")"
    while [[ -e $exe ]]; do sleep 0.05; done
  done
}
finish() {
  stop_daemon
  rm -rf "$folder"
}
trap finish EXIT
fail() { echo "FAILED: $*"; exit 1; }

DESTDIR=$folder/stage cmake --install "$build" --prefix /usr >"$folder/log" || { cat "$folder/log"; fail 'install'; }
mv "$folder/stage/usr" "$folder/moved"
for file in bin/berth bin/berthd bin/berth-load lib/berth/{shim,sim}/{libcuda,libnvidia-ml}.so.1 lib/berth/shim/libberth_cudart.so share/doc/berth/LICENSE share/berth/systemd/berth.toml share/man/man1/berth.1 \
    share/bash-completion/completions/berth share/zsh/site-functions/_berth share/fish/vendor_completions.d/berth.fish; do
  [[ -s $folder/moved/$file ]] || fail "$file was not installed"
done
grep -q '^ExecStart=/usr/bin/berthd ' "$folder/moved/share/berth/systemd/berth.service" || fail 'the unit does not start /usr/bin/berthd'
! grep -rIl --fixed-strings "$build" "$folder/moved" || fail 'the installed files above name the build folder'

version=$("$folder/moved/bin/berth" --version)
[[ $version == *[0-9].[0-9]* ]] || fail "berth --version printed '$version'"
result=$("$folder/moved/bin/berth" run -m 1G -- "$folder/moved/bin/berth-load" alloc --grow --step 64M --seconds 0 --json | tail -1)
[[ $result == *'"name":"CUDA_ERROR_OUT_OF_MEMORY"'* ]] || fail "a job of the moved tree was not held to its quota: $result"
[[ $result == *'"total_bytes":1073741824'* ]] || fail "a job of the moved tree does not see its quota: $result"
preloaded=$("$folder/moved/bin/berth" run -g 2 -m 1G -- printenv LD_PRELOAD)
[[ $preloaded == "$folder/moved/lib/berth/shim/libberth_cudart.so" ]] || fail "a job with virtual devices preloads '$preloaded'"
stop_daemon

echo mine >"$folder/moved/bin/other"
"$source/scripts/uninstall.sh" "$folder/moved"
left=$(find "$folder/moved" -mindepth 1 | sort)
[[ $left == "$folder/moved/bin"$'\n'"$folder/moved/bin/other" ]] || fail "left behind: $left"
! "$source/scripts/uninstall.sh" "$folder/moved" 2>"$folder/log" || fail 'a second uninstall said nothing'
grep -q 'no berth is installed below' "$folder/log" || fail "a second uninstall said: $(cat "$folder/log")"

#!/usr/bin/env bash
# For container_*_test.sh: a daemon on the simulated GPU, a small root file system of host files, and the checks.
# Sourced with the build folder as $1.
set -euo pipefail

build=$(realpath "$1")
work=$(mktemp -d)
group=/berth-test-$$
export BERTH_SOCKET=$work/run/berth.sock BERTH_DRIVER=sim BERTH_SIM_DIR=$work/sim BERTH_SIM_MEMORY=16G
unset XDG_RUNTIME_DIR LD_LIBRARY_PATH
berth=$build/bin/berth
daemon=

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "failed: $*"; exit 1; }

finish() {
  [[ -z $daemon ]] || kill "$daemon" 2>/dev/null || true
  [[ -z $daemon ]] || wait "$daemon" 2>/dev/null || true
  local folder
  for folder in /sys/fs/cgroup/*"$group" /sys/fs/cgroup"$group"; do
    [[ ! -d $folder ]] || find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT

# The root file system: berth-load, a shell, and what they need; nothing of berth, which is mounted.
make_root() {
  mkdir -p "$work"/root/{bin,dev,proc,sys,tmp,run/berth,run/berth-sim,usr/local/lib/berth} "$work"/{run,sim}
  chmod 700 "$work/run"
  local file library
  cp "$build/bin/berth-load" "$(command -v sh)" "$work/root/bin/"
  for file in "$work"/root/bin/* "$build"/lib/berth/*/lib*; do
    while read -r library; do
      mkdir -p "$work/root$(dirname "$library")"
      cp -Ln "$library" "$work/root$library"
    done < <(ldd "$file" | grep -o '/[^ ]*')
  done
}

start_daemon() {
  "$berth" daemon --socket "$BERTH_SOCKET" & daemon=$!
  local tries
  for tries in $(seq 500); do
    [[ ! -S $BERTH_SOCKET ]] || return 0
    sleep 0.02
  done
  fail "the daemon did not start ($tries tries)"
}

# A key of a result line of berth-load.
value() { grep -o "\"$2\":[0-9]*" <<<"$1" | tail -n 1 | cut -d: -f2; }

# check_quota CONTAINER: CONTAINER is a function that runs a command in a container whose cgroup is its first argument.
check_quota() {
  local container=$1 output
  output=$("$container" "$group/free" /bin/berth-load check --seconds 0 --json)
  (($(value "$output" total_bytes) > 15 << 30)) || fail "a container that is not registered is limited: $output"

  "$berth" container add box --cgroup "$group/box" -m 2G
  output=$("$container" "$group/box" /bin/berth-load alloc --grow --seconds 0 --json)
  (($(value "$output" total_bytes) == 2 << 30)) || fail "the container sees another quota than its own: $output"
  (($(value "$output" bytes) <= 2 << 30)) || fail "the container got more than its quota: $output"
  (($(value "$output" wrong) == 0)) || fail "patterns were wrong: $output"
  grep -q '"refusal":{' <<<"$output" || fail "the container was never refused: $output"

  local tries
  for tries in $(seq 600); do
    "$berth" ps | grep -q '^box ' || return 0
    sleep 0.05
  done
  fail "the job did not end with its container ($tries tries)"
}

# Virtual devices, and an ordinal beyond them.
check_virtual() {
  local container=$1 device output
  for device in 0 1 2; do
    "$berth" container add "two-$device" --cgroup "$group/two-$device" -g 2 -m 1G 2>/dev/null
    output=$("$container" "$group/two-$device" /bin/sh -c "BERTH_GPUS=2 exec /bin/berth-load check --seconds 0 --json --device $device" 2>&1) &&
      ((device < 2)) || ((device == 2)) || fail "virtual device $device: $output"
    ((device == 2)) || (($(value "$output" total_bytes) == 1 << 30)) || fail "virtual device $device has another quota: $output"
  done
  ! grep -q '"total_bytes"' <<<"$output" || fail "there is a third of two virtual devices: $output"
}

# The same from outside, while the container runs: it is seen as a client of its job, by the pid it has outside.
check_view() {
  local container=$1 tries
  "$berth" container add seen --cgroup "$group/seen" -m 2G
  "$container" "$group/seen" /bin/berth-load check --seconds 1000 --json >"$work/output" & local runner=$!
  for tries in $(seq 600); do
    if "$berth" ps | grep -Eq '^  [0-9]+ +berth-load'; then
      "$berth" kill seen
      wait "$runner" || true
      return 0
    fi
    sleep 0.05
  done
  fail "berth ps does not show the container's program ($tries tries)"
}

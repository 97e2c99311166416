#!/usr/bin/env bash
# What `make run` shows: three unmodified CUDA programs share one GPU, each within its quota, and a fourth finds no room.
# On the machine's GPU where there is one, else on the simulated one. Takes less than 20 s and leaves nothing behind.
set -euo pipefail
bin=$(cd "$(dirname "$0")/../build/release/bin" && pwd)
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder BERTH_SOCKET=$folder/berth.sock BERTH_SIM_DIR=$folder/sim
jobs=()
daemon=

finish() {
  trap - EXIT INT TERM
  kill "${jobs[@]}" $daemon 2>/dev/null || true
  wait
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

if [[ -z ${BERTH_DRIVER:-} ]] && ! "$bin/berth-load" alloc --bytes 1M --seconds 0 >/dev/null 2>&1; then
  export BERTH_DRIVER=sim
  echo 'No GPU here: the programs run on the simulated one.'
fi

# One of our own, so that it ends with us; `berth run` would start one by itself.
"$bin/berth" daemon 2>"$folder/daemon.log" &
daemon=$!
for ((try = 0; try < 100; try++)); do
  [[ -S $BERTH_SOCKET ]] && break
  sleep 0.05
done

# start NAME PERCENT PRIORITY LOAD-OPTIONS...: its standard output and errors go to files of that name.
start() {
  local name=$1 quota=$2 priority=$3
  shift 3
  echo "  berth run -n $name -m $quota -p $priority -- berth-load $*"
  "$bin/berth" run -n "$name" -m "$quota" -p "$priority" -- "$bin/berth-load" "$@" >"$folder/$name.out" 2>"$folder/$name.err" &
  jobs+=($!)
}

# Draws `berth ps` once a second, in place on a terminal, for as long as a job runs.
watch_jobs() {
  local drawn=0 table
  while kill -0 "${jobs[@]}" 2>/dev/null; do
    table=$("$bin/berth" ps 2>&1) || true
    [[ -t 1 ]] && ((drawn)) && printf '\033[%dA\033[J' "$drawn"
    printf '%s\n\n' "$table"
    drawn=$(($(wc -l <<<"$table") + 1))
    sleep 1
  done
}

# told NAME KEY...: lines of a program's report.
told() {
  local name=$1
  shift
  echo "$name"
  (IFS='|'; grep -E "^($*) " "$folder/$name.out" || true) | sed 's/^/  /'
  sed 's/^/  /' "$folder/$name.err"
}

echo
echo 'Three programs at once:'
start service 25% high infer --bytes 512M --seconds 10
start trainer 35% normal train --bytes 1G --seconds 10
start greedy 25% low alloc --grow --seconds 8
sleep 1
echo 'and a fourth that asks for half of the GPU:'
start latecomer 50% normal check --seconds 1
echo
watch_jobs
wait "${jobs[@]}" || true
jobs=()

echo 'What each got:'
told service served p50_ms p99_ms bytes total_bytes
told trainer steps_per_s bytes total_bytes
told greedy bytes refusal total_bytes
told latecomer refusal
echo
echo 'What happened:'
"$bin/berth" events | sed 's/^/  /'

#!/usr/bin/env bash
# What `make run` shows: three unmodified CUDA programs share one GPU, each within its quota, and a fourth finds no room.
# On the machine's GPU where there is one, else on the simulated one. Takes less than 20 s and leaves nothing behind.
# demo.sh [BUILD-FOLDER]
set -euo pipefail
bin=$(cd "${1:-$(dirname "$0")/../build/release}/bin" && pwd)
folder=$(mktemp -d)
export XDG_RUNTIME_DIR=$folder BERTH_SOCKET=$folder/berth.sock BERTH_SIM_DIR=$folder/sim
jobs=()
daemon=

finish() {
  trap - EXIT INT TERM
  # The daemon last: a job whose daemon goes away starts another one.
  if ((${#jobs[@]})); then
    kill "${jobs[@]}" 2>/dev/null || true
    wait "${jobs[@]}" || true
  fi
  if [[ $daemon ]]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" || true
  fi
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

# `berth ps` once a second for as long as a job runs: in place on a terminal, elsewhere whenever it has changed.
watch_jobs() {
  local lines=0 table shown=
  while kill -0 "${jobs[@]}" 2>/dev/null; do
    table=$("$bin/berth" ps 2>&1) || true
    [[ -t 1 ]] && ((lines)) && printf '\033[%dA\033[J' "$lines"
    [[ ! -t 1 && $table == "$shown" ]] || printf '%s\n\n' "$table"
    shown=$table
    lines=$(($(wc -l <<<"$table") + 1))
    sleep 1
  done
}

# got NAME KEY: one value of a program's report.
got() { awk -v key="$2" '$1 == key { sub(/^[^ ]+ +/, ""); print }' "$folder/$1.out"; }
row() { printf '  %-9s %-10s %-10s %s\n' "$1" "$(got "$1" total_bytes)" "$(got "$1" bytes)" "$2"; }

echo
echo 'Three programs at once:'
start service 25% high infer --bytes 512M --seconds 10
start trainer 35% normal train --bytes 1G --seconds 10
start greedy 25% normal alloc --grow --seconds 8
sleep 1
echo 'and a fourth that asks for half of the GPU:'
start latecomer 50% normal check --seconds 1
echo
watch_jobs
status=0
for job in "${jobs[@]:0:3}"; do wait "$job" || status=1; done
if wait "${jobs[3]}" || (($? != 75)); then status=1; fi
jobs=()
if ((status)); then
  echo 'This did not go as it should. What the programs and the daemon said:' >&2
  tail -n +1 "$folder"/*.{out,err,log} >&2
  exit 1
fi

echo 'What each got:'
printf '  %-9s %-10s %-10s\n' program 'its GPU' allocated
row service "answered $(got service served) requests: half within $(got service p50_ms) ms, 99% within $(got service p99_ms) ms"
row trainer "did $(got trainer steps_per_s) steps a second"
row greedy "then $(got greedy refusal)"
echo
echo 'Who was refused, and why:'
"$bin/berth" events | awk -F '  +' '$2 == "over_quota" || $2 == "job_refused" { print "  " $3 ": " $4 }'

#!/usr/bin/env bash
# The recipe of docs/containers.md with podman, on the simulated GPU.
# shellcheck disable=SC2154  # what container_common.sh sets
set -euo pipefail
source "$(dirname "$0")/container_common.sh"
command -v podman >/dev/null || skip "podman is not installed"
[[ $(id -u) == 0 ]] || skip "podman chooses the cgroup itself without root"
make_root
limit=$(ulimit -Hn)
[[ $limit != unlimited ]] || limit=1048576
runtime=()
in_podman() {
  podman "${runtime[@]}" --cgroup-manager cgroupfs --root "$work/storage" --runroot "$work/storage-run" run --rm --network none \
    --ulimit "nofile=$limit:$limit" --ulimit nproc=1024:1024 --cgroup-parent "$1" \
    -v "$build/lib/berth:/usr/local/lib/berth:ro" -v "$work/run:/run/berth:ro" -v "$work/sim:/run/berth-sim" \
    -e LD_LIBRARY_PATH=/usr/local/lib/berth/shim -e BERTH_SIM_DIR=/run/berth-sim \
    -e BERTH_DRIVER=/usr/local/lib/berth/sim/libcuda.so.1 --rootfs "$work/root" "${@:2}" </dev/null
}

# Which of the two common runtimes works depends on the machine's cgroups.
for name in crun runc none; do
  [[ $name != none ]] || skip "podman cannot run here: $(tail -n 1 "$work/fault")"
  runtime=(--runtime "$name")
  ! in_podman "$group/try" /bin/sh -c 'exit 0' 2>"$work/fault" || break
done
start_daemon
check_quota in_podman
check_view in_podman
check_virtual in_podman
echo ok

#!/usr/bin/env bash
# The recipe of docs/containers.md with runc, on the simulated GPU.
# shellcheck disable=SC2154  # what container_common.sh sets
set -euo pipefail
source "$(dirname "$0")/container_common.sh"
command -v runc >/dev/null || skip "runc is not installed"
[[ $(id -u) == 0 ]] || skip "runc needs root here"
make_root

# in_runc CGROUP COMMAND...
in_runc() {
  local bundle
  bundle=$work/bundle-$(basename "$1")
  mkdir -p "$bundle"
  (cd "$bundle" && rm -f config.json && runc spec)
  python3 - "$bundle/config.json" "$build" "$work" "$@" <<'EOF'
import json, sys
file, build, work, cgroup, *command = sys.argv[1:]
with open(file) as stream:
    config = json.load(stream)
config["root"] = {"path": f"{work}/root", "readonly": False}
config["linux"]["cgroupsPath"] = cgroup
config["process"].update(terminal=False, args=command)
config["process"].pop("rlimits", None)
config["process"]["env"] += ["LD_LIBRARY_PATH=/usr/local/lib/berth/shim", "BERTH_SIM_DIR=/run/berth-sim",
                             "BERTH_DRIVER=/usr/local/lib/berth/sim/libcuda.so.1"]
for source, target, mode in ((f"{build}/lib/berth", "/usr/local/lib/berth", "ro"), (f"{work}/run", "/run/berth", "ro"),
                             (f"{work}/sim", "/run/berth-sim", "rw")):
    config["mounts"].append({"source": source, "destination": target, "type": "bind", "options": ["bind", mode]})
with open(file, "w") as stream:
    json.dump(config, stream)
EOF
  runc run --bundle "$bundle" "berth-test-$$-$(basename "$1")" </dev/null
}

in_runc "$group/try" /bin/sh -c 'exit 0' 2>"$work/fault" || skip "runc cannot run here: $(tail -n 1 "$work/fault")"
start_daemon
check_quota in_runc
check_view in_runc
check_virtual in_runc
echo ok

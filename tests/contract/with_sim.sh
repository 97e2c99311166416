#!/usr/bin/env bash
# with_sim.sh COMMAND...: runs it with simulated cards of its own.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/sim"
BERTH_SIM_DIR=$work/sim BERTH_SIM_MEMORY=8G "$@"

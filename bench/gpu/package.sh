#!/usr/bin/env bash
# package.sh BUILD_FOLDER FOLDER: what the scenarios need of a build, stripped, for a machine with a GPU where nothing can be built.
# FOLDER then serves as their BUILD_FOLDER; the scripts themselves, examples/ and tests/ are taken from the source tree.
set -euo pipefail
build=$1 folder=$2
mkdir -p "$folder"
for file in bin/berth bin/berthd bin/berth-load lib/berth tests/contract_trace tests/driver_calls tests/graph_parts examples/devices; do
  [[ -e $build/$file ]] || { echo "no $file in $build" >&2; continue; }
  mkdir -p "$folder/$(dirname "$file")"
  cp -a "$build/$file" "$folder/$(dirname "$file")/"
done
find "$folder" -type f -exec sh -c 'head -c 4 "$1" | grep -q ELF' _ {} \; -exec strip --strip-unneeded {} +
du -sh "$folder"
ldd "$folder"/bin/berth* | awk '!/:$/ { print $1 }' | sort -u | tr '\n' ' '
echo

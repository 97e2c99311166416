#!/usr/bin/env bash
# Installs the Debian packages that are missing for the given uses: dependencies.sh build test ...
# As root or with CI=true unasked; otherwise it shows the command and asks.
set -euo pipefail
list=$(dirname "$0")/../packaging/debian-packages.txt

uses=" $* "
missing=()
while read -r package use _; do
  [[ $package == \#* || -z $package || $uses != *" $use "* ]] && continue
  if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then missing+=("$package"); fi
done <"$list"
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
  echo "This is not a Debian system. berth needs what these packages contain: ${missing[*]}" >&2
  exit 0
fi
as_root=()
((EUID == 0)) || as_root=(sudo)
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}")
if ((EUID != 0)) && [[ ${CI:-} != true ]]; then
  printf 'berth needs Debian packages that are not here yet:\n  sudo apt-get install --no-install-recommends %s\n' "${missing[*]}"
  answer=
  read -r -p 'Run this now? [y/N] ' answer || true
  [[ $answer == [yY]* ]] || { echo 'Nothing was installed. Run the line above, then try again.' >&2; exit 1; }
fi
"${as_root[@]}" apt-get update -qq
"${install[@]}"

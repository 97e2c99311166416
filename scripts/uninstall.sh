#!/usr/bin/env bash
# Removes what `make install` put below a prefix: uninstall.sh PREFIX
set -euo pipefail
prefix=${1%/}
manifest=$prefix/share/berth/manifest.txt
if [[ ! -f $manifest ]]; then
  echo "uninstall: no berth is installed below ${prefix:-/} ($manifest is not there); give the PREFIX it was installed with" >&2
  exit 1
fi
parents=()
while read -r file; do
  # Only paths below the prefix: the list is a file that somebody may have edited.
  case /$file/ in
    */../* | //*) echo "uninstall: $manifest names '$file', which is not below the prefix" >&2; exit 1 ;;
  esac
  rm -f -- "$prefix/$file"
  while file=$(dirname "$file") && [[ $file != . ]]; do parents+=("$prefix/$file"); done
done <"$manifest"
find "$prefix"/{lib,share,share/doc}/berth -depth -type d -empty -delete 2>/dev/null || true
# Deepest first; a folder that has something else in it stays.
printf '%s\n' "${parents[@]}" | sort -ru | xargs -d '\n' rmdir --ignore-fail-on-non-empty -- 2>/dev/null || true

#!/usr/bin/env bash
# Prints the newest version of glibc whose symbols a program needs. Fails if it is newer than NEWEST.
# usage: glibc.sh PROGRAM [NEWEST]      Ubuntu 22.04 has glibc 2.35, RHEL 9 has 2.34.
set -euo pipefail
program=$1 newest=${2:-}
# Matches lines such as "Name: GLIBC_2.34  Flags: none  Version: 15" in the list of needed versions.
versions=$(LC_ALL=C readelf --version-info --wide "$program" | sed -n 's/.*Name: GLIBC_\([0-9.]*\) .*/\1/p')
needed=$(sort --version-sort <<<"$versions" | tail -n 1)
[ -n "$needed" ] || { echo "$0: $program needs no symbol of glibc: is it linked statically?" >&2; exit 1; }
if [ -n "$newest" ] && [ "$(printf '%s\n' "$needed" "$newest" | sort --version-sort | tail -n 1)" != "$newest" ]; then
  echo "$0: $program needs glibc $needed, but at most $newest is allowed, because of these symbols:" >&2
  LC_ALL=C readelf --dyn-syms --wide "$program" | grep -F "@GLIBC_$needed" >&2
  exit 1
fi
echo "$needed"

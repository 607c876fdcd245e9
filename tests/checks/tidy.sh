#!/usr/bin/env bash
# Runs clang-tidy on our sources, the tests' left out. Usage: tidy.sh BUILD_FOLDER
set -euo pipefail
build=$(cd "$1" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"
mapfile -t files < <(sources_of cc | grep -v '^tests/' | while read -r file; do
  grep -qF "\"$PWD/$file\"" "$build/compile_commands.json" && echo "$file"
done)
((${#files[@]})) || { echo "tidy.sh: $build/compile_commands.json names no source" >&2 && exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
log=$scratch/log
# clang-tidy cannot read the compiler's precompiled headers.
sed -E 's/-Winvalid-pch|-include [^ ]*cmake_pch\.hxx//g' "$build/compile_commands.json" \
  >"$scratch/compile_commands.json"
if ! printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p "$scratch" \
  >"$log" 2>/dev/null; then
  cat "$log"
  echo "tidy.sh: clang-tidy complains, see above" >&2
  exit 1
fi
echo "${#files[@]} files are clean"

#!/usr/bin/env bash
# Runs clang-tidy on our sources, the tests' left out, each file for itself. Usage: tidy.sh [FILE...]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"
build=$PWD/build/tidy
cmake --preset dev -B "$build" -DCMAKE_UNITY_BUILD=OFF -DDMUON_TESTS=OFF >/dev/null
cmake --build "$build" --target dmuon_rpc_sources >/dev/null
(($#)) || set -- $(sources_of cc | grep -v '^tests/')
files=()
for file; do
  grep -qF "\"$PWD/$file\"" "$build/compile_commands.json" && files+=("$file")
done
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

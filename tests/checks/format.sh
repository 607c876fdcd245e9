#!/usr/bin/env bash
# Fails, naming the files, where a source file is not formatted as .clang-format says.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/sources.sh"
mapfile -t files < <(sources_of h cc cu cuh)
((${#files[@]})) || { echo "format.sh: found no source files" >&2 && exit 1; }
bad=$(clang-format --dry-run "${files[@]}" 2>&1 |
  sed -n 's/^\([^:]*\):.*clang-formatted.*/\1/p' | sort -u)
if [[ -n $bad ]]; then
  printf 'not formatted; run clang-format -i on:\n%s\n' "$bad" >&2
  exit 1
fi
clang-format --dry-run --Werror "${files[@]}"
echo "${#files[@]} files are formatted"

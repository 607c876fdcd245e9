#!/usr/bin/env bash
# Builds the programs and the Python package into build/release. Usage: build.sh [LOG]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ${1:-} == -* ]]; then
  echo "usage: build.sh [LOG]" >&2
  exit 2
fi
log=${1:-/dev/stdout}
start=$SECONDS
build() {
  cmake --preset release -DDMUON_TESTS=OFF &&
    cmake --build --preset release --target dmuond dmuonctl dmuon_python
}
echo "building dmuond, dmuonctl and the Python package in build/release"
if ! build >"$log" 2>&1; then
  [[ $log == /dev/stdout ]] || tail -n 30 "$log" >&2
  echo "build.sh: the build failed${1:+; its log: $log}" >&2
  exit 1
fi
echo "built in $((SECONDS - start)) s"

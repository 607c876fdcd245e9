#!/usr/bin/env bash
# Installs what the tests need, builds them (preset dev) and runs them with ctest.
#   --full   the long forms too: sanitizer builds, clang-tidy, Slurm, the full-length quickstart
# Ends with ctest's summary and its exit code.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

selection=(--label-exclude full)
case ${1:-} in
  '') ;;
  --full) selection=() ;;
  -h | --help) sed -n '2,4s/^# //p' "$0" && exit 0 ;;
  *) echo "tests/run.sh: unknown option '$1'; usage: tests/run.sh [--full]" >&2 && exit 2 ;;
esac

deploy/install-packages.sh build run test
start=$SECONDS
cmake --preset dev
cmake --build --preset dev
echo "built in $((SECONDS - start)) s"
exec ctest --preset dev --no-tests=error --parallel "$(nproc)" "${selection[@]}"

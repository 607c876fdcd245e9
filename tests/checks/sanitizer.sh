#!/usr/bin/env bash
# Builds a sanitizer preset and runs the unit and session tests in it. Usage: sanitizer.sh asan|tsan
# The suppressions beside this file name libraries that are not ours only.
set -euo pipefail
preset=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
export ASAN_OPTIONS=abort_on_error=0:halt_on_error=1:detect_leaks=1:verify_asan_link_order=0
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export LSAN_OPTIONS=suppressions=$here/lsan.supp:print_suppressions=0
TSAN_OPTIONS=suppressions=$here/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1
export TSAN_OPTIONS+=:second_deadlock_stack=1:history_size=7
cmake --preset "$preset"
cmake --build --preset "$preset"
if [[ $preset == asan ]]; then
  cc -shared -fPIC -o "build/$preset/keep_modules.so" "$here/keep_modules.c"
  export LD_PRELOAD=$PWD/build/$preset/keep_modules.so
fi
ctest --preset "$preset" --parallel "$(nproc)" --no-tests=error --label-regex '^(unit|mpi)$' --label-exclude full

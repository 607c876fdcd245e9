# Source it. sources_of SUFFIX...: our source files with these suffixes, one a line, relative to the
# repository's root, which becomes the working directory.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

sources_of() {
  local suffix patterns=()
  for suffix in "$@"; do patterns+=(-o -name "*.$suffix"); done
  find proto kernels scheduler daemon client tests \( "${patterns[@]:1}" \) -type f | sort
}

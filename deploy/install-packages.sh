#!/usr/bin/env bash
# Installs the Debian 12 packages that the project needs. Usage: install-packages.sh [SET...]
#   build   compilers and libraries
#   run     what the daemon, the Python client and the quickstart use at run time
#   test    what tests/run.sh needs beyond the two others
# Without a set: build and run. Does nothing, and needs no privilege, where all packages are there.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build pkg-config ccache
  libopenmpi-dev                                                 # MPI
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev  # control plane
  libdnnl-dev                                                    # CPU kernels
  coinor-libcbc-dev                                              # the scheduler's integer programs
  libspdlog-dev libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
)
# Micro-kernels for x86; Debian has them there only, and the build does without them.
[[ $(dpkg --print-architecture 2>/dev/null) != amd64 ]] || build_packages+=(libxsmm-dev)
run_packages=(
  openmpi-bin
  python3 python3-numpy python3-grpcio python3-protobuf python3-mpi4py  # Python client
  python3-torch
  libopenblas0-pthread  # without it torch and numpy use the reference BLAS, 20 times slower
  python3-matplotlib    # loss curves
  jargon-text           # what the quickstart trains on: 1.7 MB of English, public domain
)
test_packages=(
  git libgtest-dev libgmock-dev libbenchmark-dev python3-pytest
  clang-format clang-tidy
  slurm-wlm munge
)
# Minimal images leave /usr/share/doc out; the text lives there.
text_file=/usr/share/doc/jargon-text/jargon.txt.gz
keep_text=(-o "Dpkg::Options::=--path-include=${text_file%/*}*")

fail() {
  echo "install-packages.sh: $*" >&2
  exit 1
}

# Prints the packages among the arguments that are not installed.
missing_of() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      echo "$package"
  done
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    command -v sudo >/dev/null ||
      fail "run this as root, or install sudo: these packages are missing: ${missing[*]}"
    sudo "$@"
  fi
}

# Runs apt-get quietly; shows its last lines if it fails.
apt_get() {
  local log
  log=$(mktemp)
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" \
    >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

install_missing() {
  echo "installing ${#missing[@]} packages: ${missing[*]}"
  apt_get update || echo "install-packages.sh: apt-get update failed; trying the lists there are" >&2
  apt_get install --no-install-recommends "${keep_text[@]}" "${missing[@]}" ||
    fail "apt-get install failed (its last lines are above); check the network and the entries of" \
      "/etc/apt/sources.list (Debian 12, main), then run this again"
}

command -v dpkg-query >/dev/null ||
  fail "this is no Debian system: install what the lists in this script name by other means"
sets=("$@")
((${#sets[@]})) || sets=(build run)
packages=()
for set in "${sets[@]}"; do
  case $set in
    build) packages+=("${build_packages[@]}") ;;
    run) packages+=("${run_packages[@]}") ;;
    test) packages+=("${test_packages[@]}") ;;
    *) fail "no package set '$set'; the sets are build, run and test" ;;
  esac
done
mapfile -t missing < <(missing_of "${packages[@]}")
((${#missing[@]} == 0)) || install_missing
if [[ " ${sets[*]} " == *" run "* && ! -e $text_file ]]; then
  missing=(jargon-text)
  apt_get install --reinstall "${keep_text[@]}" jargon-text ||
    fail "could not install $text_file from package jargon-text"
fi
echo "packages ready: ${sets[*]} (${#packages[@]} named)"

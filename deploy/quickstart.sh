#!/usr/bin/env bash
# Installs, builds and trains: a small GPT on real text, its optimizer in dmuond's owner processes;
# then the same training with AdamW, and a comparison.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: quickstart.sh [options]
  --steps N         training steps (300)
  --owners N        owner processes (2)
  --trainers N      trainer processes (2); 24 windows per step must divide among them
  --channel NAME    how gradients travel: grpc (trainers are ordinary processes) or mpi (owners and
                    trainers in one mpirun job) (grpc)
  --out DIR         where records, logs, loss.png and report.json go (build/quickstart)
  --skip-install    do not install Debian packages
  --build DIR       use the programs that are built in DIR; build nothing
TEXT
}

fail() {
  echo "quickstart.sh: $*" >&2
  exit 1
}

# Ends a process and everything below it.
end_tree() {
  local child
  for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do end_tree "$child"; done
  kill "$1" 2>/dev/null || true
}

# Runs a command so that a signal to this script ends it too.
run_step() {
  "$@" &
  local step=$!
  trap 'end_tree '"$step"'; exit 143' TERM HUP
  trap 'end_tree '"$step"'; exit 130' INT
  wait "$step"
  trap - TERM HUP INT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
steps=300 owners=2 trainers=2 channel=grpc out=$root/build/quickstart
install=yes build=
while (($#)); do
  case $1 in
    --steps | --owners | --trainers | --channel | --out | --build)
      (($# > 1)) || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift 2
      ;;
    --skip-install) install=no && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && fail "unknown option '$1'" ;;
  esac
done
for name in steps owners trainers; do
  [[ ${!name} =~ ^[1-9][0-9]*$ ]] || fail "--$name '${!name}' is not a positive number"
done
[[ $channel == grpc || $channel == mpi ]] || fail "--channel '$channel': choose grpc or mpi"
((24 % trainers == 0)) ||
  fail "--trainers $trainers: 24 windows do not divide evenly; try 1, 2, 3 or 4"

[[ $install == no ]] || run_step "$root/deploy/install-packages.sh" build run
mkdir -p "$out"
if [[ -z $build ]]; then
  run_step "$root/deploy/build.sh" "$out/build.log"
  build=$root/build/release
fi
[[ -x $build/bin/dmuond ]] || fail "$build/bin/dmuond is not there; build it, or leave --build out"
exec /usr/bin/python3 "$root/deploy/quickstart/run.py" --steps "$steps" --owners "$owners" \
  --trainers "$trainers" --channel "$channel" --out "$out" --build "$build"

#!/usr/bin/env bash
# The quickstart under a real Slurm on this machine: one job that completes, one that is cancelled
# in the middle of training. Usage: slurm_test.sh BUILD_FOLDER. Exit code 77: skipped.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$1
source "$here/slurm_cluster.sh"

reason=$(slurm_missing)
if [[ -n $reason ]]; then
  echo "skipped: $reason"
  exit 77
fi

folder=$(mktemp -d /tmp/dmuon-slurm-XXXXXX)
finish() {
  scancel --quiet "${job:-0}" 2>/dev/null && wait_until 40 job_is_over "$job"
  slurm_stop
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 143' TERM INT

fail() {
  echo "FAILED: $*" >&2
  [[ -f $output ]] && tail -n 40 "$output" >&2
  exit 1
}

# submit NAME [OPTIONS...]: submits the quickstart; sets job and output. TMPDIR and the output are
# below the test's folder, so that whatever a job leaves behind is found there.
submit() {
  local name=$1
  shift
  output=$folder/$name.out
  mkdir -p "$folder/$name"
  job=$(cd "$root" && TMPDIR=$folder/$name sbatch --parsable --output="$output" \
    deploy/slurm/quickstart.sbatch --build "$build" --out "$folder/$name-out" "$@") ||
    fail "sbatch refused the job"
}

# Processes that belong to the job, by their environment.
processes_of_job() {
  local environment
  for environment in /proc/[0-9]*/environ; do
    if tr '\0' '\n' <"$environment" 2>/dev/null | grep -qx "SLURM_JOB_ID=$job"; then
      tr '\0' ' ' <"${environment%environ}cmdline"
      echo
    fi
  done 2>/dev/null
}

no_process_of_job() { [[ -z $(processes_of_job) ]]; }

check_nothing_left() {
  wait_until 10 no_process_of_job || fail "job $job left processes: $(processes_of_job)"
  [[ -z $(ls -A "$folder/$1") ]] || fail "job $job left files: $(ls -R "$folder/$1")"
  local segment
  for segment in /dev/shm/vader_segment.*; do
    [[ ! -e $segment || -n ${segments_before[$segment]:-} ]] && continue
    grep -qs "$segment" /proc/[0-9]*/maps || fail "job $job left $segment"
  done
}

is_training() { grep -Eq '^dmuond +step +[0-9]+/' "$output" 2>/dev/null; }

declare -A segments_before
for segment in /dev/shm/vader_segment.*; do segments_before[$segment]=yes; done

output=
slurm_start "$folder" || fail "Slurm did not start"

submit completes --steps 12
wait_until 240 job_is_over "$job" || fail "job $job did not end"
[[ $(job_state "$job") == COMPLETED ]] || fail "job $job is $(job_state "$job"), not COMPLETED"
grep -q 'validation loss, nats per character, at equal steps' "$output" || fail "no loss table"
# Initial loss is about ln(155) = 5.04 nats; twelve steps bring both below 4.
awk '$1 == 12 && NF == 4 { exit !($2 < 4 && $3 < 4 && $2 > 1 && $3 > 1) } ' "$output" &&
  grep -Eq '^ +12 +[0-9.]+ +[0-9.]+ +[-+][0-9.]+$' "$output" || fail "no loss of the last step"
check_nothing_left completes
echo "job $job: COMPLETED, with the loss table"

submit cancelled --steps 5000
wait_until 120 is_training || fail "job $job does not train"
[[ -n $(processes_of_job | grep bin/dmuond) ]] || fail "no owner of job $job is running"
[[ -n $(ls "$folder/cancelled"/*/dmuond.sock) ]] || fail "job $job has no socket while it trains"
scancel "$job"
wait_until 40 job_is_over "$job" || fail "job $job did not end after scancel"
[[ $(job_state "$job") == CANCELLED ]] || fail "job $job is $(job_state "$job"), not CANCELLED"
check_nothing_left cancelled
echo "job $job: CANCELLED, with nothing left"

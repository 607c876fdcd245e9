#!/usr/bin/env bash
# Builds the kernels alone, runs their tests and benchmark on this machine's GPU and writes one JSON
# report. Needs a driver, the CUDA toolkit, a C++ compiler, CMake and GoogleTest; no network.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: gpu-check.sh [--cpu] [--report FILE.json]
       gpu-check.sh --bundle FILE.tar.gz [--googletest FOLDER]
  --report FILE        where the report goes (build/gpu-check-cuda/report.json)
  --cpu                the same on the CPU backend (needs oneDNN), with an eighth of the sizes
  --bundle FILE        only make an archive that a bare machine needs to run this script
  --googletest FOLDER  GoogleTest's sources for the archive (/usr/src/googletest)
exit code: 0 all is well, 1 something failed, 2 it cannot run here
TEXT
}

cannot() {
  echo "gpu-check.sh: cannot run here: $*" >&2
  exit 2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mode=cuda report= bundle= googletest=/usr/src/googletest
while (($#)); do
  case $1 in
    --report | --bundle | --googletest)
      (($# > 1)) || cannot "$1 needs a value"
      declare "${1#--}=$(realpath -m -- "$2")"
      shift 2
      ;;
    --cpu) mode=cpu && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && cannot "unknown option '$1'" ;;
  esac
done
work=$root/build/gpu-check-$mode
report=${report:-$work/report.json}

commit() {
  cat "$root/COMMIT" 2>/dev/null ||
    git -C "$root" describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown
}

make_bundle() {
  [[ -f $googletest/googletest/include/gtest/gtest.h ]] ||
    cannot "$googletest holds no GoogleTest sources: install libgtest-dev, or name their folder" \
      "with --googletest"
  local folder
  folder=$(mktemp -d)
  trap "rm -rf '$folder'" EXIT
  mkdir -p "$folder/dmuon-gpu-check"
  tar -C "$root" --exclude=__pycache__ -cf - CMakeLists.txt LICENSE deploy/gpu-check.sh kernels \
    tests/CMakeLists.txt tests/kernels tests/bench | tar -C "$folder/dmuon-gpu-check" -xf -
  cp -R "$googletest" "$folder/dmuon-gpu-check/googletest"
  commit >"$folder/dmuon-gpu-check/COMMIT"
  tar -C "$folder" --owner=0 --group=0 --sort=name -czf "$bundle" dmuon-gpu-check
  echo "$bundle: unpack it on the machine and run dmuon-gpu-check/deploy/gpu-check.sh"
}

check_tools() {
  local tool version
  for tool in cmake c++ timeout awk; do
    command -v "$tool" >/dev/null || cannot "no $tool on the PATH: install it"
  done
  command -v make >/dev/null || command -v ninja >/dev/null ||
    cannot "neither make nor ninja is on the PATH: install one of them"
  version=$(cmake --version | awk 'NR == 1 { print $3 }')
  [[ $(printf '%s\n' 3.22 "$version" | sort -V | head -n 1) == 3.22 ]] ||
    cannot "cmake $version is older than 3.22: install a newer one and put it first on the PATH"
}

# Sets device, driver, toolkit, nvcc and sm.
check_gpu() {
  local answer capability
  command -v nvidia-smi >/dev/null ||
    cannot "no nvidia-smi on the PATH, so no NVIDIA driver: use a machine with a GPU, or --cpu"
  answer=$(timeout 60 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader -i 0 2>&1) ||
    cannot "nvidia-smi finds no working GPU: ${answer%%$'\n'*}; check the driver, or use --cpu"
  device=${answer%%, *} driver=${answer##*, }
  nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
  [[ -x $nvcc ]] ||
    cannot "no nvcc on the PATH and none at $nvcc: install the CUDA toolkit, or name its folder" \
      "in CUDA_HOME"
  toolkit=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  # One architecture builds faster than all. What this nvcc does not know gets the default's PTX.
  capability=$(timeout 60 nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0) || true
  sm=${capability/./}
  [[ $sm != 90 ]] || sm=90a
  "$nvcc" --list-gpu-code | grep -qxF "sm_$sm" || sm=
}

show() { echo "gpu-check: $*"; }

problems=()
problem() {
  problems+=("$*")
  echo "gpu-check.sh: $*" >&2
}

# step NAME SECONDS COMMAND...: output goes to NAME.out and NAME.log. Records a problem if it fails
# or takes longer. Interrupting this script ends the step.
step() {
  local name=$1 limit=$2 code=0 begin=$SECONDS
  shift 2
  timeout -k 10 "$limit" "$@" >"$work/$name.out" 2>"$work/$name.log" </dev/null &
  local child=$!
  trap 'kill '"$child"' 2>/dev/null; exit 143' TERM HUP
  trap 'kill '"$child"' 2>/dev/null; exit 130' INT
  wait "$child" || code=$?
  trap - TERM HUP INT
  if ((code == 0)); then
    show "$name: done in $((SECONDS - begin)) s"
    return 0
  fi
  tail -n 15 "$work/$name.out" "$work/$name.log" >&2
  if ((code == 124 || code == 137)); then
    problem "step $name did not end within $limit s and was stopped; see $work/$name.log"
  else
    problem "step $name failed with exit code $code; see $work/$name.log and $name.out"
  fi
  return 1
}

configure_and_build() {
  local options=(-DCMAKE_BUILD_TYPE=Release -DDMUON_KERNELS_ONLY=ON -DDMUON_WARNINGS_AS_ERRORS=OFF)
  if [[ $mode == cpu ]]; then
    options+=(-DDMUON_CPU=ON -DDMUON_CUDA=OFF)
  else
    options+=(-DDMUON_CPU=OFF -DDMUON_CUDA=ON -DDMUON_CUDA_SM="$sm"
      -DCUDAToolkit_ROOT="$(dirname "$(dirname "$nvcc")")")
  fi
  [[ ! -d $root/googletest ]] || options+=(-DDMUON_GTEST_SOURCE="$root/googletest")
  # Folders that were configured before keep their generator.
  [[ -f $work/CMakeCache.txt ]] || ! command -v ninja >/dev/null || options+=(-G Ninja)
  step configure 180 cmake -S "$root" -B "$work" "${options[@]}" &&
    step build 900 cmake --build "$work" --target kernels_test bench_newton_schulz \
      --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
}

# Counts and names of one of GoogleTest's JSON reports, as JSON. on_device: those that ran, not
# skipped, on the backend that is checked.
summarize_tests() {
  awk -v suffix="/$device_tests" '
    function value() { sub(/^[^:]*: "/, ""); sub(/",?$/, ""); return $0 }
    function listed(names) { return "[" substr(names, 2) "]" }
    /^ *"name": "/ { name = value() }
    /^ *"result": "/ { result = value() }
    /^ *"classname": "/ {
      name = value() "." name
      at = length(name) - length(suffix) + 1
      if (result == "SKIPPED") { skipped++; skipped_names = skipped_names ",\"" name "\"" }
      else { ran++; on_device += at > 0 && substr(name, at) == suffix }
    }
    /^ *"failures": \[/ { failed++; failed_names = failed_names ",\"" name "\"" }
    END {
      printf "{\"passed\": %d, \"failed\": %d, \"skipped\": %d, \"on_device\": %d,\n", \
        ran - failed, failed, skipped, on_device
      printf "  \"failed_names\": %s,\n", listed(failed_names)
      printf "  \"skipped_names\": %s}\n", listed(skipped_names)
    }' "$1"
}

# run_tests NAME SECONDS COMMAND...: the conformance suite; its summary becomes NAME.json.
run_tests() {
  local name=$1 limit=$2
  shift 2
  rm -f "$work/$name.gtest.json"
  step "$name" "$limit" "$@" --gtest_output="json:$work/$name.gtest.json" || true
  if [[ ! -s $work/$name.gtest.json ]]; then
    echo '{"skipped_because": "the step wrote no report: it ended early"}' >"$work/$name.json"
    return
  fi
  summarize_tests "$work/$name.gtest.json" >"$work/$name.json"
  ! grep -q '"on_device": 0,' "$work/$name.json" ||
    problem "step $name: no test ran on the device; $work/$name.out says why they were skipped"
}

# Memory errors of every operation of the device and of both forms on small shapes: under the
# sanitizer, the whole suite would take too long.
sanitizer_filter=Backends/DeviceTest.*/cuda:Backends/AdamWStep.*/cuda
sanitizer_filter+=:Backends/MuonStep.KnownValues*/cuda
sanitizer_filter+=:Backends/MuonStep.OrientationDoesNotMatter/cuda*
sanitizer_filter+=:Backends/NewtonSchulz.IsAccurateOnSmallAndThinShapes/cuda*
sanitizer_filter+=:CudaDevice.*

run_sanitizer() {
  local tool
  tool=$(command -v compute-sanitizer || echo "$(dirname "${nvcc:-/}")/compute-sanitizer")
  if [[ $mode == cpu || ! -x $tool ]]; then
    echo '{"skipped_because": "no compute-sanitizer, or no GPU"}' >"$work/sanitizer.json"
    return
  fi
  run_tests sanitizer 240 "$tool" --tool memcheck --error-exitcode 9 "$work/bin/kernels_test" \
    --gtest_filter="$sanitizer_filter"
}

run_benchmark() {
  local case shape batch variant name separator=
  {
    echo '['
    for case in "${cases[@]}"; do
      read -r shape batch <<<"$case"
      for variant in "${variants[@]}"; do
        name=bench-$shape-${variant// /}
        # shellcheck disable=SC2086  # a variant is a precision and options after it
        step "$name" 120 "$work/bin/bench_newton_schulz" --device "$mode" --shape "$shape" \
          --batch "$batch" --json --precision $variant >&3 || continue
        printf '%s' "$separator" && cat "$work/$name.out"
        separator=,
      done
    done
    echo ']'
  } 3>&1 >"$work/benchmarks.json"
}

run_torch() {
  local python shape batch case options=()
  for python in "$(command -v python3 || true)" /usr/bin/python3; do
    if [[ -x $python ]] && timeout 120 "$python" -c "import sys, torch
sys.exit('$mode' == 'cuda' and not torch.cuda.is_available())" 2>/dev/null; then
      # PyTorch's emulated bf16 is slow: on CPUs, the last case only.
      [[ $mode == cuda ]] || cases=("${cases[@]: -1}")
      for case in "${cases[@]}"; do
        read -r shape batch <<<"$case"
        options+=(--shape "${shape}x$batch")
      done
      step torch 240 "$python" "$root/tests/bench/compare_torch.py" --bin "$work/bin" --json \
        --device "$mode" --rounds 1 "${options[@]}" && cp "$work/torch.out" "$work/torch.json" && return
      echo '{"skipped_because": "it failed"}' >"$work/torch.json"
      return
    fi
  done
  show "torch: skipped: no python3 whose torch has this device"
  echo '{"skipped_because": "no python3 whose torch has this device"}' >"$work/torch.json"
}

quoted() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  printf '"%s"' "${text//[[:cntrl:]]/ }"
}

section() { [[ -s $work/$1.json ]] && cat "$work/$1.json" || echo null; }

write_report() {
  local separator= text
  {
    echo '{'
    printf '"backend": "%s",\n"device": %s,\n' "$mode" "$(quoted "$device")"
    printf '"driver": %s,\n"toolkit": %s,\n' "$(quoted "$driver")" "$(quoted "$toolkit")"
    printf '"compiler": %s,\n' "$(quoted "$(c++ --version | head -n 1)")"
    printf '"commit": %s,\n"seconds": %d,\n' "$(quoted "$(commit)")" "$SECONDS"
    printf '"problems": ['
    for text in ${problems[@]+"${problems[@]}"}; do
      printf '%s%s' "$separator" "$(quoted "$text")"
      separator=', '
    done
    printf '],\n"tests": %s,\n"sanitizer": %s,\n' "$(section tests)" "$(section sanitizer)"
    printf '"sanitizer_filter": %s,\n' "$(quoted "$sanitizer_filter")"
    printf '"benchmarks": %s,\n"torch": %s\n}\n' "$(section benchmarks)" "$(section torch)"
  } >"$report"
}

if [[ -n $bundle ]]; then
  make_bundle
  exit 0
fi
device="$mode" driver= toolkit= nvcc= sm=
cases=("2048x5464 16" "4096x4096 1" "1024x4096 8") variants=(fp16 "fp16 --batched" bf16)
device_tests=cuda
if [[ $mode == cpu ]]; then
  cases=("256x683 16" "512x512 1" "128x512 8") variants=(fp32 bf16) device_tests=cpu_1_thread
fi
[[ $mode == cpu ]] || check_gpu
check_tools
mkdir -p "$work" "$(dirname "$report")" || cannot "no folder $work or no place for $report"
rm -f "$work"/{tests,sanitizer,benchmarks,torch}.json
show "$mode${sm:+, sm_$sm}: building and testing in $work"
if configure_and_build; then
  run_tests tests 300 "$work/bin/kernels_test"
  run_sanitizer
  run_benchmark
  run_torch
fi
write_report
show "${#problems[@]} problems; report: $report"
((${#problems[@]} == 0))

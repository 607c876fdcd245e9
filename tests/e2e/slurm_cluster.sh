# A Slurm cluster of this one machine, for tests; source it. Needs root, slurm-wlm and munge.
# Everything it makes lives below the folder given to slurm_start, on ports of its own, so that it
# disturbs no other Slurm or munge on the machine.

# slurm_missing: prints why no cluster can be started here; nothing if one can.
slurm_missing() {
  local program
  ((EUID == 0)) || { echo "needs root: slurmd starts jobs" && return; }
  for program in munged slurmctld slurmd sbatch scancel scontrol; do
    command -v "$program" >/dev/null ||
      { echo "$program is not installed (deploy/install-packages.sh test)" && return; }
  done
}

free_ports() {
  /usr/bin/python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))'
}

# slurm_start FOLDER: starts munged, slurmctld and slurmd; returns when the node is idle.
slurm_start() {
  slurm_folder=$1
  local controller_port node_port
  read -r controller_port node_port < <(free_ports)
  mkdir -p "$slurm_folder"/{state,spool}
  chmod 755 "$slurm_folder"
  (umask 077 && head -c 128 /dev/urandom >"$slurm_folder/munge.key")
  cat >"$slurm_folder/slurm.conf" <<TEXT
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$controller_port
SlurmdPort=$node_port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm_folder/munge.sock
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmdPidFile=$slurm_folder/slurmd.pid
SlurmctldLogFile=$slurm_folder/slurmctld.log
SlurmdLogFile=$slurm_folder/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=pmix
SlurmdParameters=config_overrides
SelectType=select/cons_tres
ReturnToService=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
TEXT
  export SLURM_CONF=$slurm_folder/slurm.conf
  munged --force --key-file "$slurm_folder/munge.key" --socket "$slurm_folder/munge.sock" \
    --pid-file "$slurm_folder/munged.pid" --log-file "$slurm_folder/munged.log" \
    --seed-file "$slurm_folder/munge.seed" || return 1
  slurmctld -c || return 1
  slurmd -N localhost || return 1
  wait_until 30 node_is_idle || {
    echo "the Slurm node did not become idle; logs:" >&2
    tail -n 20 "$slurm_folder"/slurm*.log >&2
    return 1
  }
}

node_is_idle() { [[ $(sinfo -h -o %T 2>/dev/null) == idle ]]; }

# slurm_stop: ends the three daemons.
slurm_stop() {
  local name pid
  for name in slurmd slurmctld munged; do
    pid=$(cat "$slurm_folder/$name.pid" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || continue
    wait_until 10 process_is_gone "$pid" || kill -9 "$pid"
  done
}

process_is_gone() { ! kill -0 "$1" 2>/dev/null; }

# wait_until SECONDS COMMAND...: polls until the command succeeds; fails after SECONDS.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.2
  done
}

job_state() { scontrol show job "$1" -o | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'; }

job_is_over() { [[ $(job_state "$1") =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)$ ]]; }

lead() {   # $1: leader or standby. Comes back where no supervisor can be started; SL_WHY: why
  settle || return
  . "$SL_LOCAL/lib/safelaunch/supervisor/births.sh" 2>/dev/null && supervise "$1"
  SL_WHY="no supervisor in ${SL_LIBRARY[*]}"
  rm -rf "$SL_LOCAL"
}

clean_environment() {   # of the submitting shell's variables only those stay that people set for safelaunch
  local name
  for name in "${!SAFELAUNCH_@}" SL_CORE_KB; do   # docs/train-yaml.md
    case $name in
    SAFELAUNCH_LOCAL_DIR | SAFELAUNCH_SITE_CONFIG | SAFELAUNCH_RULES) ;;
    SAFELAUNCH_LOCAL | SAFELAUNCH_NODE) [[ ${SL_SRUN[0]} != srun ]] || unset "$name" ;;   # the local cluster's
    *) unset "$name" ;;
    esac
  done
  export SAFELAUNCH_UMASK=${SL_UMASK:-$(umask)}   # the training's, in each job; our own files are closed
  umask 077
}

case ${1:-} in
attempt)   # called by the leader, and by attempts/*/launch.sh
  shift
  [[ ! ${SAFELAUNCH_FILES:-} ]] || ulimit -S -n "$SAFELAUNCH_FILES"   # the leader has raised its own
  unset SAFELAUNCH_FILES
  load_library "${0%/*}"   # not from attempts/*/launch.sh, by hand
  attempt "$@"; SL_CODE=$?
  # In one write: whoever reads it before finds it empty, and waits. A `mv` would take 2 ms of every restart.
  [[ ! ${SAFELAUNCH_EXIT_FILE:-} ]] || echo "$SL_CODE" >"$SAFELAUNCH_EXIT_FILE"
  exit "$SL_CODE"
  ;;
plain) plain "$2" ;;
standby)   # a step on another node than the batch host's, started by the leader: a second supervisor
  umask 077
  (close_output &)
  lead standby
  exit
  ;;
esac

if [[ ! ${SLURM_JOB_ID:-} ]]; then
  echo "safelaunch: nothing is started: there is no Slurm job around this shell. Submit this script (sbatch $0)," \
    "or train in a job of your own: salloc …, then safelaunch submit --here train.yaml" >&2
  exit 2
fi
trap 'SL_WARNED=yes' USR2   # Slurm's warning may come before a supervisor lives (--time=1)
clean_environment
(close_output &)   # the folder may be frozen; no child of this shell, which can wait for any child (see `supervise`)
if [[ -e $SL_KILL_FILE || -e $SL_RUN_DIR/control/kill-now ]]; then
  say "the kill switch is touched ($SL_RUN_DIR/control): nothing is started"
  SL_KILLED=1
fi
say "run $SL_RUN_ID, job ${SLURM_JOB_ID:-?} on ${SLURM_JOB_NODELIST:-this machine}"
say "see it: safelaunch status $SL_RUN_DIR"
if [[ $SL_CLUSTER && ${SLURM_CLUSTER_NAME:-} && ${SLURM_CLUSTER_NAME,,} != "$SL_CLUSTER" ]]; then   # a federation
  # Slurm knows nothing of the run's other jobs here: whether an attempt of one lives, or what is left of it.
  say "this job has started on cluster $SLURM_CLUSTER_NAME, and the run belongs to $SL_CLUSTER, where an attempt of" \
    "it may live: nothing is started. Submit it on $SL_CLUSTER, or here as another run"
  exit 2
fi
lead leader
[[ ! ${SL_KILLED:-} ]] || exit 12
plain "$SL_WHY"

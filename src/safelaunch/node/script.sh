# Sourced by a job script's `attempt` beside its library: a user's own script finds its srun, sbatch and others.
# shellcheck shell=bash disable=SC2015,SC2016,SC2034,SC2154,SC2317,SC2329  # what is not set here is the job script's
supervise_script() {
  if [[ ${SAFELAUNCH_GUARD:-} && ! ${SAFELAUNCH_LOCAL:-} ]]; then
    put_commands || say "no program can be run from $SL_HERE: the script's sruns have no node guards"
  fi
  [[ ! ${SAFELAUNCH_EXCLUDE:-} ]] || count_own_nodes
  [[ ! ${SAFELAUNCH_OUTPUT:-} ]] || within_patience link_output
}

put_commands() {   # the script's srun, sbatch, scontrol, … come to safelaunch first; fails where no program runs
  local name text
  text=$(declare -f NAME)
  [[ -x $SL_HERE/bin/srun ]] || { mkdir -p "$SL_HERE/bin" && ln -sf "$SL_HERE/job.sbatch" "$SL_HERE/bin/srun"; }
  [[ -x $SL_HERE/bin/srun ]] && hash srun 2>/dev/null || return
  export SAFELAUNCH_SRUN=${BASH_CMDS[srun]} SAFELAUNCH_WRAPPER=$SL_HERE/bin/srun PATH=$SL_HERE/bin:$PATH
  # As functions too: where the script sets PATH anew, they go with it.
  export_srun
  for name in sbatch scontrol squeue sacct scancel; do   # node/standin, where the supervisor has put it
    eval "${text//NAME/$name}; export -f $name"
  done
  # A login shell does so, in its profile; behind that it reads this file (bash(1), INVOCATION), once.
  if [[ $SL_FIRST =~ bash.*[[:space:]](--login|-[a-z]*l) && (! ${BASH_ENV:-} || -f $BASH_ENV) ]]; then
    {
      printf 'PATH=%q:$PATH\nunset BASH_ENV\n' "$SL_HERE/bin"
      [[ ! ${BASH_ENV:-} ]] || printf 'export BASH_ENV=%q\n. %q\n' "$BASH_ENV" "$BASH_ENV"
    } >"$SL_HERE/bash_env" && SL_PROFILED=(env "BASH_ENV=$SL_HERE/bash_env")
  fi
  printf -v name '%s/attempt-%04d.sruns' "$SL_HERE" "$SAFELAUNCH_ATTEMPT"
  : >"$name"   # a line for each, of note_srun
}

NAME() {   # under `set -x` the trace has the call alone, as of a program (bash 4.4)
  { local - && set +x || :; } 2>/dev/null
  if [[ -x ${SAFELAUNCH_WRAPPER%/*}/NAME ]]; then "${SAFELAUNCH_WRAPPER%/*}/NAME" "$@"; else command NAME "$@"; fi
}

export_srun() {   # `hash` would find no program of a function's name: it is defined late
  srun() {   # `srun … &`: $! is the shell that runs this function, so it passes on what is sent to it (`kill $!`)
    { local - && set +x || :; } 2>/dev/null
    local child is_sent='' name code=0 own=''
    if [[ ! -x ${SAFELAUNCH_WRAPPER:-} ]]; then
      command srun "$@"
      return
    fi
    # Behind such a trap `trap -p` shows the subshell's own ones only.
    [[ $BASHPID == "$$" ]] || { trap : RTMAX && trap - RTMAX && own=$(trap -p TERM HUP USR1 USR2 ALRM); }
    if [[ $BASHPID == "$$" || $own ]]; then
      "$SAFELAUNCH_WRAPPER" "$@"
      return
    fi
    ( trap - INT QUIT; exec "$SAFELAUNCH_WRAPPER" "$@" ) <&0 &   # `&` would have both ignored
    child=$!
    for name in TERM HUP USR1 USR2 ALRM; do
      # shellcheck disable=SC2064  # the names of now
      trap "is_sent=yes; kill -s $name $child 2>/dev/null" "$name"
    done
    while kill -0 "$child" 2>/dev/null; do wait "$child" || :; done   # a trapped signal ends `wait` early
    wait "$child" || code=$?
    trap - TERM HUP USR1 USR2 ALRM
    [[ ! $is_sent ]] || exit "$code"   # without the traps the signal would have ended this shell
    return "$code"
  }
  export -f srun
}

count_own_nodes() {   # the script counts the attempt's nodes, not the job's
  local times=''
  export SLURM_JOB_NODELIST=$SAFELAUNCH_NODELIST SLURM_NODELIST=$SAFELAUNCH_NODELIST
  export SLURM_NNODES=$SL_NODES SLURM_JOB_NUM_NODES=$SL_NODES SLURM_TASKS_PER_NODE=$SL_LAYOUT
  [[ ! ${SLURM_NTASKS:-} ]] || export SLURM_NTASKS=$SL_TASKS SLURM_NPROCS=$SL_TASKS
  ((SL_NODES == 1)) || times="(x$SL_NODES)"
  [[ ${SLURM_JOB_CPUS_PER_NODE:-,} == *,* ]] || SLURM_JOB_CPUS_PER_NODE=${SLURM_JOB_CPUS_PER_NODE/%(x*)/$times}
}

link_output() {   # where sbatch would write: a link to this attempt's log, which replaces what is there, as sbatch does
  local name log
  printf -v log '%s/attempts/%04d/main.log' "$SL_RUN_DIR" "$SAFELAUNCH_ATTEMPT"
  (
    umask 077
    [[ ! -g $SL_RUN_DIR ]] || umask 027
    mkdir -p "${log%/*}" && : >>"$log"
  )
  umask "${SAFELAUNCH_UMASK:-$(umask)}"
  for name in "$SAFELAUNCH_OUTPUT" ${SAFELAUNCH_ERROR:+"$SAFELAUNCH_ERROR"}; do
    if [[ -f $name && ! -L $name && ${SLURM_OPEN_MODE:-} == a* ]]; then
      echo "safelaunch: $name stays as it is (--open-mode=append): this attempt's output is $log"
    elif [[ -L $name || -f $name || ! -e $name ]]; then   # no device
      [[ -d ${name%/*}/ ]] || mkdir -p -- "${name%/*}"
      ln -sfn -- "$log" "$name"
    fi
  done
} 2>/dev/null

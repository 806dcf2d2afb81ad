# ---- What `attempt` needs: your script as a file, and the ways of its commands.
SL_PART=script.sh
prepare_script() {   # SL_SCRIPT: the folder of its file; SL_FIRST: its first line; SL_PROFILED: for a login shell
  local word
  SL_SCRIPT=${SL_HERE:-} SL_PROFILED=()
  [[ $SL_SCRIPT ]] || SL_SCRIPT=$(mktemp -d) || return
  [[ ! ${SAFELAUNCH_LINK:-} ]] || SL_ARGS=("$@")   # with which the script has submitted itself
  [[ ! -r ${SAFELAUNCH_SCRIPT:-} ]] || SL_COMMAND=$(<"$SAFELAUNCH_SCRIPT")   # and its text, where that has changed
  # As a file, because a script may read itself ($0); never executed as one, because /tmp may be mounted noexec.
  printf '%s' "$SL_COMMAND" >"$SL_SCRIPT/slurm_script" || return   # nobody else can enter this folder
  SL_FIRST=${SL_COMMAND%%$'\n'*}
  ! declare -F supervise_script >/dev/null || supervise_script   # node/script.sh: SL_NODES, SL_TASKS, SL_LAYOUT
  [[ ! ${SLURM_JOB_NAME:-} ]] || SLURM_JOB_NAME=${SAFELAUNCH_JOB_NAME:-$SL_JOB_NAME}   # as the script has named it
  for word in "${SL_NUMBERS[@]}"; do   # where the job asks for other numbers than the script has
    if [[ $word == *=* ]]; then export "${word?}"; else unset "$word"; fi
  done
  unset SAFELAUNCH_LINK SAFELAUNCH_SCRIPT SAFELAUNCH_OUTPUT SAFELAUNCH_ERROR SAFELAUNCH_JOB_NAME
  export_run
  export SAFELAUNCH_BARE=yes
  export WANDB_RUN_ID=${WANDB_RUN_ID-$SL_RUN_ID} WANDB_RESUME=${WANDB_RESUME-allow}
  prepare_on_node
}

sl_prepare() {   # the script itself, and what its sruns run: their words as they are
  SL_ARGV=("$@")
  if [[ ${SAFELAUNCH_STEP:-} ]]; then
    unset -f srun   # a rank that calls srun is on its own; a trainer that submits its script again is not
    [[ ! -x ${SAFELAUNCH_WRAPPER%/*}/sbatch ]] || PATH=${SAFELAUNCH_WRAPPER%/*}:${PATH:-/usr/bin:/bin}
    PWD=${SAFELAUNCH_PWD:-}   # which bash has set to where it is: srun --chdir does not
    [[ $PWD ]] || unset PWD
    unset SAFELAUNCH_PWD
  else
    PWD=${SLURM_SUBMIT_DIR:-$PWD}   # sbatch --chdir leaves it as it was
  fi
}
SL_ON_NODE+=(sl_prepare)


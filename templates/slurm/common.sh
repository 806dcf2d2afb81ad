export_run() {   # what a training, its guards and safelaunch_progress read of its run
  export SAFELAUNCH_ATTEMPT=${SAFELAUNCH_ATTEMPT:-1} SAFELAUNCH_RUN_ID=$SL_RUN_ID SAFELAUNCH_KILL_FILE=$SL_KILL_FILE
  export SAFELAUNCH_SAVE_FILE=$SL_RUN_DIR/control/save SAFELAUNCH_LEASE_S=$SL_LEASE_S
  export SAFELAUNCH_MARK=$SL_RUN_ID.${SLURM_JOB_ID:-0}.$SAFELAUNCH_ATTEMPT
  export SAFELAUNCH_LAUNCHER=$SL_LAUNCHER SAFELAUNCH_PYTHON=$SL_PYTHON
}

with_env() {   # "$@" with the variables of env:, in a shell of its own: they must not change what this one does
  (
    umask "${SAFELAUNCH_UMASK:-$(umask)}"
    ((${#SL_ENV[@]} == 0)) || export "${SL_ENV[@]}"
    [[ $SL_LAUNCHER != script ]] || export SAFELAUNCH_ROOT=$BASHPID   # where its sruns find what their guards need
    exec "$@"
  ) </dev/null
}


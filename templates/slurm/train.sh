attempt() {   # one launch of the training; "$@": arguments that say where to resume. Its exit code is srun's
  prepare_attempt   # of the supervision below: SL_STEP, this attempt's options; SL_ON_EACH_NODE, what a task runs
  export NCCL_ASYNC_ERROR_HANDLING=${NCCL_ASYNC_ERROR_HANDLING-1}
  export TORCH_NCCL_ASYNC_ERROR_HANDLING=${TORCH_NCCL_ASYNC_ERROR_HANDLING-3}   # PyTorch's default: clean up, abort
  export WANDB_RUN_ID=${WANDB_RUN_ID-$SL_RUN_ID} WANDB_RESUME=${WANDB_RESUME-allow}
  export MASTER_ADDR MASTER_PORT
  MASTER_ADDR=${SAFELAUNCH_MASTER_ADDR:-$(first_address)}
  # Another port for each attempt: a dying rank may still hold the last one.
  MASTER_PORT=${SAFELAUNCH_MASTER_PORT:-$((20000 + (${SLURM_JOB_ID:-0} * 31 + SAFELAUNCH_ATTEMPT * 7) % 10000))}
  # --wait=0: a rank that is done does not end the others.
  with_env "${SL_SRUN[@]}" --nodes="$SL_NODES" --ntasks="$((SL_NODES * SL_TASKS_PER_NODE))" \
    --ntasks-per-node="$SL_TASKS_PER_NODE" --wait=0 --kill-on-bad-exit="$SL_KILL_ON_BAD_EXIT" "${SL_STEP[@]}" \
    "${SL_SRUN_EXTRA[@]}" bash -c "$SL_ON_EACH_NODE" safelaunch-node "$@"
}


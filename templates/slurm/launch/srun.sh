sl_task() {   # of each task, before `setup:` and `command:`: what torch.distributed and others read
  export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
  export LOCAL_WORLD_SIZE=$SAFELAUNCH_TASKS_PER_NODE
}
SL_ON_NODE+=(sl_task)


sl_task() {   # of each task: JAX reads Slurm's variables itself, but would take the same port in each attempt
  export JAX_COORDINATOR_ADDRESS=$MASTER_ADDR:$MASTER_PORT
  export SLURM_STEP_NODELIST=${SLURM_STEP_NODELIST-$SLURM_JOB_NODELIST}   # the local cluster has none
}
SL_ON_NODE+=(sl_task)


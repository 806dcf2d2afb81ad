sl_task() {   # of each task, before `setup:` and `command:`
  export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS
  export LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE=$SAFELAUNCH_TASKS_PER_NODE
  if [[ $SLURM_NTASKS != 1 && ! (${!PMI*} || ${!PALS_*}) ]]; then
    # Each task would be an MPI world of its own, and all would write the same checkpoint.
    echo "safelaunch: srun --mpi has set no variable PMI* here: try srun.extra: [--mpi=pmi2] (docs/launchers.md)" >&2
    exit 1
  fi
}
SL_ON_NODE+=(sl_task)


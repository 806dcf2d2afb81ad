# ---- What `attempt` needs
prepare_attempt() {   # SL_STEP, SL_ON_EACH_NODE, and what a task reads. No local variable: it would hide a training's
  SL_NODES=${SAFELAUNCH_NODES:-$SL_NODES}   # fewer than all, where no full set could be had
  [[ ! ${SAFELAUNCH_RESIZE_OUTPUT:-} ]] || resize_instead
  SL_STEP=(${SL_CPUS_PER_TASK:+"--cpus-per-task=$SL_CPUS_PER_TASK"})   # from 22.05 on srun does not inherit it
  [[ ! ${SAFELAUNCH_NODELIST:-} ]] || SL_STEP+=("--nodelist=$SAFELAUNCH_NODELIST")
  # The step before may not have ended for Slurm yet; without --overlap srun would wait for it, for ever if a node of it
  # is silent. Some sites refuse it.
  [[ ${SAFELAUNCH_ATTEMPT:-1} == 1 || ${SAFELAUNCH_OVERLAP:-} == no ]] || SL_STEP+=(--overlap)
  [[ $SL_LAUNCHER != mpi ]] || SL_STEP+=(--mpi=pmix)   # srun obeys the last one, so srun.extra can say another
  prepare_on_node
  hash "${SL_SRUN[0]}" 2>/dev/null   # found before the training's own PATH is set
  SL_SRUN[0]=${BASH_CMDS[${SL_SRUN[0]}]:-${SL_SRUN[0]}}
  unset SLURM_EXPORT_ENV   # left by --export=NONE; with it srun finds no PATH
  export_run
  export SAFELAUNCH_TASKS_PER_NODE=$SL_TASKS_PER_NODE SAFELAUNCH_TEE=${SL_TEE:-} SAFELAUNCH_LAUNCH_ARGS
  export SAFELAUNCH_NPROC_PER_NODE=${SL_NPROC_PER_NODE:-1}
  printf -v SAFELAUNCH_LAUNCH_ARGS '%s\n' "${SL_LAUNCH_ARGS[@]}"
  export SAFELAUNCH_COMMAND=$SL_COMMAND SAFELAUNCH_SETUP=$SL_SETUP SAFELAUNCH_LOGIN_SHELL=$SL_LOGIN_SHELL
  [[ ! ${SL_CONTAINER:-} ]] || export_container
}

first_address() {   # an address of the attempt's first node that every node can reach
  local node address=''
  node=$(scontrol show hostnames "${SAFELAUNCH_NODELIST:-$SLURM_JOB_NODELIST}" 2>/dev/null | head -n 1)
  node=${node:-$(hostname -s)}
  getent hosts "$node" >/dev/null || address=$(scontrol show node "$node" 2>/dev/null)
  [[ ! $address =~ NodeAddr=([^ ]+) ]] || node=${BASH_REMATCH[1]}
  echo "$node"
}


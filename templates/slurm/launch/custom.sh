sl_start_ranks() {   # once on each node, behind `setup:`; "$@": the words of launch.call, filled in (sl_fill_in)
  exec "$@"
}
sl_fill_in() {   # what launch.call names, for this node
  SL_FILLED=${SAFELAUNCH_LAUNCH_ARGS//'{nnodes}'/"$SLURM_NNODES"}
  SL_FILLED=${SL_FILLED//'{node_rank}'/"$SLURM_NODEID"}
  SL_FILLED=${SL_FILLED//'{nproc_per_node}'/"$SAFELAUNCH_NPROC_PER_NODE"}
  SL_FILLED=${SL_FILLED//'{master_addr}'/"$MASTER_ADDR"}
  SL_FILLED=${SL_FILLED//'{master_port}'/"$MASTER_PORT"}
  SL_FILLED=${SL_FILLED//'{host}'/"$SL_HOST"}
  SAFELAUNCH_LAUNCH_ARGS=${SL_FILLED//'{tee}'/"$SAFELAUNCH_TEE"}
  # By this name the guard tells the launcher from its ranks: its program, or the module of `python3 -m`.
  export SAFELAUNCH_PROGRAM=${SAFELAUNCH_LAUNCH_ARGS%%$'\n'*}
  SAFELAUNCH_PROGRAM=${SAFELAUNCH_PROGRAM##*/}
  if [[ $SAFELAUNCH_PROGRAM == python* ]]; then
    SAFELAUNCH_PROGRAM=${SAFELAUNCH_LAUNCH_ARGS#*$'\n-m\n'}
    SAFELAUNCH_PROGRAM=${SAFELAUNCH_PROGRAM%%$'\n'*}
  fi
}
SL_ON_NODE+=(sl_start_ranks sl_fill_in)


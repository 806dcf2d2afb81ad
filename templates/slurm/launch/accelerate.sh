sl_start_ranks() {   # once on each node, behind `setup:`; "$@": launch.args, and then the shell that runs `command:`
  # A config file may say which kind it starts; without one it starts one process. For DeepSpeed it would take pdsh.
  SL_ALL=$((SLURM_NNODES * SAFELAUNCH_NPROC_PER_NODE)) SL_MULTI=yes
  SL_CONFIG=${HF_HOME:-${XDG_CACHE_HOME:-${HOME-}/.cache}/huggingface}/accelerate/default_config.yaml
  if [[ $SL_ALL == 1 || -f $SL_CONFIG || ${SAFELAUNCH_LAUNCH_ARGS//-/_} =~ __(config_file|use_[a-z]) ]]; then
    SL_MULTI=
  fi
  exec accelerate launch --num_machines "$SLURM_NNODES" --machine_rank "$SLURM_NODEID" --num_processes "$SL_ALL" \
    --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" --same_network --rdzv_backend static \
    --max_restarts 0 --role "${SAFELAUNCH_NODE:-$(hostname -s)}:" --tee "$SAFELAUNCH_TEE" \
    --deepspeed_multinode_launcher standard ${SL_MULTI:+--multi_gpu} "$@"
}
sl_check_world() {   # in each rank: with a config file for one process each node would train alone, into one checkpoint
  if [[ ${WORLD_SIZE:-1} != "$((SLURM_NNODES * SAFELAUNCH_NPROC_PER_NODE))" ]]; then
    echo "safelaunch: accelerate has started ${WORLD_SIZE:-1} process(es), not $SLURM_NNODES x" \
      "$SAFELAUNCH_NPROC_PER_NODE; does its config file say distributed_type: NO?" >&2
    exit 1
  fi
}
SL_ON_NODE+=(sl_start_ranks sl_check_world)


sl_start_ranks() {   # once on each node, behind `setup:`; "$@": launch.args, and then the shell that runs `command:`
  # It knows no static rendezvous, and without is_host whether a node hosts it depends on how the node's name resolves.
  SL_IS_HOST=false
  [[ $SLURM_NODEID != 0 ]] || SL_IS_HOST=true
  exec ft_launcher --nnodes "$SLURM_NNODES" --nproc_per_node "$SAFELAUNCH_NPROC_PER_NODE" --rdzv_backend c10d \
    --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" --rdzv_id "$SAFELAUNCH_MARK" --rdzv_conf "is_host=$SL_IS_HOST" \
    --max_restarts 0 --role "${SAFELAUNCH_NODE:-$(hostname -s)}:" --tee "$SAFELAUNCH_TEE" "$@"
}
SL_ON_NODE+=(sl_start_ranks)


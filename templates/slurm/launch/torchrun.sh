sl_start_ranks() {   # once on each node, behind `setup:`; "$@": launch.args, and then the shell that runs `command:`
  # --role with its colon makes torchrun print "[host:rank]:" before every line.
  exec torchrun --nnodes "$SLURM_NNODES" --node_rank "$SLURM_NODEID" --nproc_per_node "$SAFELAUNCH_NPROC_PER_NODE" \
    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" --max_restarts 0 \
    --role "${SAFELAUNCH_NODE:-$(hostname -s)}:" --tee "$SAFELAUNCH_TEE" "$@"
}
SL_ON_NODE+=(sl_start_ranks)
[[ $SL_TORCHRUN != direct ]] || SL_DIRECT=yes   # beside its library a node starts the ranks itself (node/guarded.sh)


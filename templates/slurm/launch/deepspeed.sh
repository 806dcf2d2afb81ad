sl_start_ranks() {   # once on each node, behind `setup:`; "$@": launch.args, and then the shell that runs `command:`
  # What `deepspeed` would start on each node, by ssh and a hostfile. It sets CUDA_VISIBLE_DEVICES to the numbers here.
  set -f
  IFS=,
  # shellcheck disable=SC2206  # numbers between commas
  SL_IDS=(${CUDA_VISIBLE_DEVICES-})
  unset IFS
  if ((${#SL_IDS[@]} < SAFELAUNCH_NPROC_PER_NODE)); then
    # shellcheck disable=SC2207
    SL_IDS=($(seq 0 "$((SAFELAUNCH_NPROC_PER_NODE - 1))"))
  fi
  printf -v SL_NODE ',"%s"' "${SL_IDS[@]:0:SAFELAUNCH_NPROC_PER_NODE}"
  SL_WORLD=
  for ((SL_NUMBER = 0; SL_NUMBER < SLURM_NNODES; SL_NUMBER++)); do
    SL_WORLD+=",\"$SL_NUMBER\":[${SL_NODE:1}]"
  done
  exec python3 -m deepspeed.launcher.launch --world_info "$(printf '{%s}' "${SL_WORLD:1}" | base64 -w 0)" \
    --node_rank "$SLURM_NODEID" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" --no_local_rank "$@"
}
SL_ON_NODE+=(sl_start_ranks)


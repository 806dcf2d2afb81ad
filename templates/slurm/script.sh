attempt() {   # your script, once, on this node, as sbatch would run it; "$@": where to resume. Its exit code
  prepare_script "$@"   # of the supervision below: the script's file, its environment, and the way of its sruns
  # The first line as the kernel reads it: an interpreter, and at most one argument.
  read -r SL_SHELL SL_WORD <<<"${SL_FIRST#'#!'}"
  with_env bash -c "$SL_ON_EACH_NODE" safelaunch-node "${SL_PROFILED[@]}" "$SL_SHELL" \
    ${SL_WORD:+"$SL_WORD"} "$SL_SCRIPT/slurm_script" ${SL_ARGS[@]+"${SL_ARGS[@]}"}
}


sl_task() {   # Ray starts between `setup:` and `command:` (sl_ray)
  :
}
sl_ray() {   # the command runs on the first node only, when Ray's workers have come on all others
  printf -v SL_NL '\n'
  sl_start_ray() {   # in the background only, where it is a shell of its own, so that `kill` reaches ray
    set -f
    IFS=$SL_NL
    # nproc(1) would count OMP_NUM_THREADS. The dashboard would take commands from every user of its node.
    # shellcheck disable=SC2086  # a word of each line
    exec ray start --num-cpus "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" --block "$@" $SAFELAUNCH_LAUNCH_ARGS
  }
  sl_is_ray_up() { (: <>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; }
  if [[ $SLURM_NODEID != 0 ]]; then
    until sl_is_ray_up; do sleep 1; done
    sl_start_ray --address "$MASTER_ADDR:$MASTER_PORT" &
    while sl_is_ray_up || { sleep 1; sl_is_ray_up; } || { sleep 1; sl_is_ray_up; }; do
      kill -0 "$!" 2>/dev/null || { echo "safelaunch: ray has ended on this node" >&2; exit 1; }
      sleep 1
    done
    kill "$!" 2>/dev/null
    exit 0
  fi
  sl_start_ray --head --port "$MASTER_PORT" --include-dashboard=false &
  until sl_is_ray_up; do
    kill -0 "$!" 2>/dev/null || { echo "safelaunch: the head of ray has not started" >&2; exit 1; }
    sleep 0.2
  done
  export RAY_ADDRESS=$MASTER_ADDR:$MASTER_PORT
  # Ray has no command that waits for its nodes: the only Python in this script.
  SL_WAIT="import os, ray, time; ray.init(logging_level='error', log_to_driver=False); [time.sleep(1) for _ in "
  SL_WAIT+="iter(lambda: sum(node['Alive'] for node in ray.nodes()) >= int(os.environ['SLURM_NNODES']), True)]"
  python3 -c "$SL_WAIT" || exit 1
  unset SL_WAIT
  unset -f sl_start_ray sl_is_ray_up
}
SL_ON_NODE+=(sl_task sl_ray)


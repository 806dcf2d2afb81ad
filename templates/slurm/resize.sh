resize_instead() {   # no training: before_resize, on one node, with all its tasks' processors
  SL_LAUNCHER=none SL_LAST='' SL_CPUS_PER_TASK=$((${SL_CPUS_PER_TASK:-1} * SL_TASKS_PER_NODE)) SL_TASKS_PER_NODE=1
  (umask "${SAFELAUNCH_UMASK:-$(umask)}" && mkdir -p -- "${SAFELAUNCH_RESIZE_OUTPUT%/*}")
  sl_prepare() { sl_prepare_task "$@"; }   # without the run's launcher
  sl_task() { :; }
  unset -f sl_ray
  printf -v SL_COMMAND '%s\n' \
    "($SL_BEFORE_RESIZE" ')' 'SL_CODE=$?' "$(declare -f sl_judge_resize)" 'sl_judge_resize "$SL_CODE"'
}
sl_judge_resize() {   # $1: exit code of before_resize
  if [[ $1 == 0 && ! $(find -L "$SAFELAUNCH_RESIZE_OUTPUT" -type f -size +0 -print -quit 2>/dev/null) ]]; then
    echo "safelaunch: before_resize has written nothing to $SAFELAUNCH_RESIZE_OUTPUT" >&2
    exit 65   # EX_DATAERR
  fi
  exit "$1"
}


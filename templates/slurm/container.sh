# A container's runtime starts the shell, and the guard starts the runtime (launch/containers.py).
export_container() {
  export SAFELAUNCH_CONTAINER=$SL_CONTAINER SAFELAUNCH_NEEDS=$SL_CONTAINER_NEEDS SAFELAUNCH_WORKDIR=$SL_WORKDIR
}
sl_contain() {   # SL_ARGV within the container
  SL_ARGV=(bash -c "$(declare -f sl_inside); "'eval "${SAFELAUNCH_PACKED:-}"; sl_inside "$@"' inside "${SL_ARGV[@]}")
  [[ $SAFELAUNCH_CONTAINER == inside ]] ||
    SL_ARGV=(bash -c "$(declare -f sl_enter sl_missing sl_look sl_fill); "'sl_enter "$@"' enter "${SL_ARGV[@]}")
}
sl_enter() {   # "$@": what is to run inside. First what must be there, in words that `why` knows
  local SL_BOX_WORDS SL_BOX_CWD=$PWD   # no names that a user's variable can have: it would be hidden
  set -f
  IFS=$'\n'
  # shellcheck disable=SC2206  # one word a line
  SL_BOX_WORDS=($SAFELAUNCH_CONTAINER)
  type -P "${SL_BOX_WORDS[0]}" >/dev/null || sl_missing "runtime ${SL_BOX_WORDS[0]}"
  sl_look
  [[ ${SAFELAUNCH_WORKDIR:-} ]] || export SAFELAUNCH_WORKDIR=$PWD
  sl_fill
  unset IFS SAFELAUNCH_CONTAINER SAFELAUNCH_NEEDS
  set +f
  if [[ " ${SL_BOX_WORDS[*]} " == *' SAFELAUNCH_PACKED '* ]]; then   # PATH and the like are the image's
    export SAFELAUNCH_PACKED
    SAFELAUNCH_PACKED=$(
      unset PATH LD_LIBRARY_PATH LD_PRELOAD HOME SHELL PYTHONHOME SAFELAUNCH_PACKED
      builtin export -p
    )
  fi
  exec "${SL_BOX_WORDS[@]}" "$@"
}
sl_missing() {   # $1: what
  local SL_BOX_HERE=${SAFELAUNCH_NODE:-}
  [[ $SL_BOX_HERE ]] || IFS=. read -r SL_BOX_HERE _ </proc/sys/kernel/hostname
  echo "safelaunch: container: the $1 is missing on $SL_BOX_HERE" >&2
  exit 78   # EX_CONFIG
}
sl_look() {   # for what the container needs of the node: a "kind path" of each line
  local SL_BOX_NEED SL_BOX_PATH
  for SL_BOX_NEED in $SAFELAUNCH_NEEDS; do
    SL_BOX_PATH=${SL_BOX_NEED#* }
    case ${SL_BOX_NEED%% *} in
    make) mkdir -p -- "$SL_BOX_PATH" 2>/dev/null ;;
    same) [[ $PWD/ != "${SL_BOX_PATH%/}"/* ]] || SL_BOX_CWD= ;;
    *) [[ -e $SL_BOX_PATH ]] || sl_missing "$SL_BOX_NEED" ;;
    esac
  done
}
sl_fill() {   # {cwd} and {task} of SL_BOX_WORDS, for this task
  local SL_BOX_NUMBER
  for SL_BOX_NUMBER in "${!SL_BOX_WORDS[@]}"; do
    if [[ ${SL_BOX_WORDS[SL_BOX_NUMBER]} == *'{cwd}'* && ! $SL_BOX_CWD ]]; then
      unset "SL_BOX_WORDS[SL_BOX_NUMBER]"   # a mount holds it already
      continue
    fi
    SL_BOX_WORDS[SL_BOX_NUMBER]=${SL_BOX_WORDS[SL_BOX_NUMBER]//'{cwd}'/"$PWD"}
    SL_BOX_WORDS[SL_BOX_NUMBER]=${SL_BOX_WORDS[SL_BOX_NUMBER]//'{task}'/"$SAFELAUNCH_RUN_ID-${SLURM_PROCID:-0}"}
  done
}
sl_inside() {   # "$@": the training's shell. Variables, whatever the image sets, and the working directory
  local SL_BOX_NAME
  for SL_BOX_NAME in "${!SAFELAUNCH_IN_@}"; do
    export "${SL_BOX_NAME#SAFELAUNCH_IN_}=${!SL_BOX_NAME}"
    unset "$SL_BOX_NAME"
  done
  if [[ ${SAFELAUNCH_WORKDIR:-} ]] && ! cd -- "$SAFELAUNCH_WORKDIR" 2>/dev/null; then
    echo "safelaunch: container: the working directory $SAFELAUNCH_WORKDIR is missing inside" >&2
    exit 78
  fi
  unset SAFELAUNCH_PACKED SAFELAUNCH_WORKDIR SAFELAUNCH_CONTAINER SAFELAUNCH_NEEDS
  exec "$@"
}
SL_ON_NODE+=(sl_contain sl_enter sl_missing sl_look sl_fill sl_inside)


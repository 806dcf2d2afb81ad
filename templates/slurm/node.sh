# ======== The supervision: nothing below is needed to understand the job ============================================
# ---- On each node: what a task runs. These functions travel there as the text of its shell.

prepare_on_node() { SL_ON_EACH_NODE="$(declare -f "${SL_ON_NODE[@]}"); sl_node \"\$@\""; }
SL_ON_NODE+=(sl_node sl_text sl_exec)

load_library() {   # $1: this job's folder on the node. A node guard for each task; a training in its shell's place
  [[ -d $1/lib ]] || return
  SL_HERE=$1
  . "$1/lib/safelaunch/node/$SL_PART"
  [[ ! ${SAFELAUNCH_GUARD:-} ]] || . "$1/lib/safelaunch/node/guarded.sh" ||
    unset SAFELAUNCH_GUARD SAFELAUNCH_GUARD_CODE SAFELAUNCH_TOKEN SAFELAUNCH_CONTROL SAFELAUNCH_ADDRESSES
}

sl_node() {   # "$@": the arguments that say where to resume; in a script's step its program
  SL_HOST=${SAFELAUNCH_NODE:-}   # read from the kernel: `hostname -s` takes 2 ms of every restart
  [[ $SL_HOST ]] || IFS=. read -r SL_HOST _ 2>/dev/null </proc/sys/kernel/hostname || SL_HOST=${SLURMD_NODENAME:-node}
  # Python writes into a pipe in blocks of 8 KiB, which come minutes late and are lost when it is killed.
  export PYTHONUNBUFFERED=${PYTHONUNBUFFERED-1}
  if [[ ${SL_CORE_KB:-} ]] && ! ulimit -S -c "$SL_CORE_KB" 2>/dev/null; then   # of submit --debug core
    echo "safelaunch: no core files of $SL_CORE_KB kB on $SL_HOST: its limit is $(ulimit -H -c) (ulimit -H -c)" >&2
  fi
  sl_prepare "$@"   # SL_ARGV: what the guard is to start
  [[ ! ${SAFELAUNCH_CONTAINER:-} ]] || sl_contain
  [[ ! ${SAFELAUNCH_BARE:-} ]] && type -P stdbuf tr sed >/dev/null || sl_exec
  sl_prefixed
}

sl_exec() { exec "${SL_ARGV[@]}"; }   # node/guarded.sh of the library has another one, for a task with a node guard

sl_text() {   # SL_TEXT: the statements of these functions, of those that this run has, for the top of another shell
  local name
  SL_TEXT=$(declare -f "$@")$'\n'
  for name; do SL_TEXT=${SL_TEXT/"$name () "$'\n{ '/}; done
  SL_TEXT=${SL_TEXT//$'\n}\n'/$';\n'}
}


# Sourced by node/guarded.sh where the leader starts the next attempt's step while this one trains (restart.warm). On
# each node a shell waits for the leader's word, beside the keeper of parked interpreters (node/warm), and then goes on as
# ever. The word comes through srun's input: where the leader ends, so does that, and the step with it.
# shellcheck shell=bash disable=SC2034,SC2154
SL_HELD=1
for SL_NAME in KEEPER:keeper HOOK:imports PROCESS:process PARKED:parked ENTER:enter; do
  read -r -d '' "SAFELAUNCH_${SL_NAME%:*}" <"${BASH_SOURCE[0]%/*}/warm/${SL_NAME#*:}.py"
done
SAFELAUNCH_HOOK+=$'\n'${SAFELAUNCH_PROCESS#*travels begins here*$'\n'}$'\n'${SAFELAUNCH_PARKED#*travels begins here*$'\n'}
export SAFELAUNCH_KEEPER SAFELAUNCH_HOOK SAFELAUNCH_ENTER
unset SAFELAUNCH_PROCESS SAFELAUNCH_PARKED
unset SL_NAME
SL_ON_NODE+=(sl_hold)

prepare_on_node() { SL_ON_EACH_NODE="$(declare -f "${SL_ON_NODE[@]}"); sl_hold; sl_node \"\${SL_GO[@]}\""; }

with_env() {   # as job.sbatch has it, with the leader's pipe as input. Without a mark: no process of it is an attempt's yet
  (
    umask "${SAFELAUNCH_UMASK:-$(umask)}"
    ((${#SL_ENV[@]} == 0)) || export "${SL_ENV[@]}"
    unset SAFELAUNCH_MARK
    exec "$@"
  )
}

sl_hold() {
  local line python
  SL_GO=()
  export SAFELAUNCH_WARM
  read -r SAFELAUNCH_WARM </proc/sys/kernel/random/uuid
  SAFELAUNCH_WARM=safelaunch-$SAFELAUNCH_WARM
  sl_pythons
  for python in "${SL_PYTHONS[@]}"; do
    ! "$python" -ISc 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || break
  done
  "$python" -ISc 'import os; exec(os.environ.pop("SAFELAUNCH_KEEPER"))' "$SAFELAUNCH_WARM" "$SAFELAUNCH_HELD" "$$" \
    </dev/null >/dev/null 2>&1 &
  unset SAFELAUNCH_KEEPER SAFELAUNCH_HOOK SAFELAUNCH_HELD SAFELAUNCH_CARE
  echo "safelaunch-held"
  while IFS= read -r line; do
    case $line in
    "="*) export "${line:1}" ;;
    "-"*) unset "${line:1}" ;;
    "+"*) SL_GO+=("${line:1}") ;;
    '?') echo safelaunch-held ;;
    .) exec </dev/null && return ;;
    esac
  done
  exit 75   # never 0, which would look like the training's success
}

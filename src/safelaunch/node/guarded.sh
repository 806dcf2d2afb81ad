# Sourced by a job script's `attempt` where a supervisor leads it: a node guard stands around each task. What it defines
# travels to the nodes with the script's own functions (`declare -f`), in the places of sl_exec, sl_train and sl_leave.
# shellcheck shell=bash disable=SC1091,SC2034  # SL_ARGV, SL_CODE and others are the job script's
SAFELAUNCH_BOOT=$(<"${BASH_SOURCE[0]%/*}/boot.py") && [[ $SAFELAUNCH_BOOT ]] || return   # Python would end at once, with 0
export SAFELAUNCH_BOOT
SL_ON_NODE+=(sl_guarded sl_find_python sl_pythons)
if [[ ${SL_DIRECT:-} ]] && SAFELAUNCH_RANKS=$(<"${BASH_SOURCE[0]%/*}/ranks.py") && [[ $SAFELAUNCH_RANKS ]]; then
  export SAFELAUNCH_RANKS
  SL_ON_NODE+=(sl_start_directly)
fi

[[ ! ${SAFELAUNCH_HELD:-} ]] || . "${BASH_SOURCE[0]%/*}/held.sh"

sl_start_directly() {   # "$@": of sl_start_ranks, which comes next where no Python can run
  ! python3 -ISc 'import select' 2>/dev/null ||
    exec python3 -ISc 'import os; exec(os.environ.pop("SAFELAUNCH_RANKS"))' torchrun "$@"
  unset SAFELAUNCH_RANKS
}

sl_pythons() { SL_PYTHONS=(/usr/bin/python3 "$SAFELAUNCH_PYTHON"); }

sl_guarded() {   # $1: a Python, or none; $2: the shell that it tells of its start, or 0; the rest: what the guard starts
  if [[ $1 ]]; then
    exec {SL_ERRORS}>&2   # what an interpreter says that cannot start is no word of the training's
    exec "$1" -I -S -c "$SAFELAUNCH_BOOT" "$SL_ERRORS" "${@:2}" 2>/dev/null
  fi
  unset SAFELAUNCH_GUARD SAFELAUNCH_GUARD_CODE SAFELAUNCH_BOOT SAFELAUNCH_TOKEN SAFELAUNCH_CONTROL SAFELAUNCH_ADDRESSES
  exec "${@:3}"
}

sl_find_python() {   # the first Python that can run a guard: a broken one must not take the training with it
  sl_pythons
  if [[ ${SAFELAUNCH_GUARD_CODE:-} && $SAFELAUNCH_LAUNCHER == script && ! ${SAFELAUNCH_STEP:-} ]]; then
    SL_PYTHON=${SL_PYTHONS[0]:-}   # the leader has compiled the guard by it, on this very node
    return
  fi
  for SL_PYTHON in "${SL_PYTHONS[@]}"; do
    "$SL_PYTHON" -I -S -c "$SAFELAUNCH_BOOT" 2>/dev/null && return
  done
  SL_PYTHON=
}

sl_exec() {   # without a shell of ours around it
  sl_find_python
  sl_guarded "$SL_PYTHON" 0 "${SL_ARGV[@]}"
}

sl_train() {   # SL_CODE: the exit code of the task's program, by the first Python that can guard it, or without one
  sl_pythons
  # A guard's Python tells this shell that it runs. To ask it beforehand would take 10 ms of every restart.
  trap 'SL_IS_TOLD=yes' URG   # by default ignored: it harms nobody
  kill -s URG "$$"
  if [[ ${SL_IS_TOLD:-} ]]; then
    SL_TELL=$$
    # Its answer: once, and again where a signal ends its training.
    trap 'kill -s CONT "$!" 2>/dev/null; SL_BY_SIGNAL=$SL_IS_TOLD SL_IS_TOLD=yes' URG
  else   # whoever started this shell ignores the signal, and then no shell can trap it (bash(1), SIGNALS)
    SL_TELL=0
    sl_find_python
    SL_PYTHONS=(${SL_PYTHON:+"$SL_PYTHON"})
  fi
  for SL_PYTHON in "${SL_PYTHONS[@]}" ''; do
    SL_IS_TOLD='' SL_BY_SIGNAL=''
    (
      trap - INT QUIT   # ignored in what runs in the background
      sl_guarded "$SL_PYTHON" "$SL_TELL" "${SL_ARGV[@]}"
    ) <&0 &
    SL_TRAINING=$!
    while kill -0 "$SL_TRAINING" 2>/dev/null; do wait "$SL_TRAINING"; done   # a trapped signal ends `wait` early
    # One that comes while bash collects the child makes it forget the end (5.2). Then it waits for the prefixing, which
    # waits for this shell's output to be closed, and the code is lost (255).
    [[ ! $SL_IS_TOLD ]] || exec >/dev/null 2>&1
    wait "$SL_TRAINING"
    SL_CODE=$?
    # A Python that is too old, broken or missing ends so, or by SIGILL, SIGABRT, SIGBUS or SIGSEGV. Any other signal was
    # somebody's who wants no training.
    [[ $SL_PYTHON && $SL_TELL != 0 && ! $SL_IS_TOLD && ($SL_CODE -lt 128 || $SL_CODE == 13[2459]) ]] || break
  done
}

sl_leave() {   # with the exit code of the training, or by the signal that ended it: srun is to tell so
  if [[ $SL_BY_SIGNAL ]] && ((SL_CODE > 128)); then
    ulimit -S -c 0
    trap - TERM INT HUP USR1 USR2
    kill -s "$((SL_CODE - 128))" "$$"
  fi
  exit "$SL_CODE"
}

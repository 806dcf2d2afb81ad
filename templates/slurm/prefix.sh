sl_prefixed() {   # the task with "[host:rank]:" before each of its lines
  sl_prefix
  sl_hand_on_signals
  sl_train
  exec >/dev/null 2>&1
  # The prefixing ends with its last writer. One that the training left behind must not keep the step alive.
  for ((SL_WAITED_S = 0; SL_WAITED_S < 5; SL_WAITED_S++)); do
    read -r -t 1 -u "$SL_END"
    (($? > 128)) || break   # above it is the timeout
  done
  sl_leave
}
sl_leave() { exit "$SL_CODE"; }   # with a node guard: node/guarded.sh
SL_ON_NODE+=(sl_prefixed sl_prefix sl_hand_on_signals sl_train sl_leave)

sl_prefix() {   # from here on every line comes whole, so that the lines of many ranks do not mix
  trap '' TERM INT HUP USR1 USR2   # for the prefixing: the training's last words are still to come
  exec {SL_OUT}>&1
  # A progress bar ends its lines by a carriage return: with no newline for hours, the log would look hung.
  coproc SL_PREFIXED {
    exec {SL_END}>&1 >&"$SL_OUT" {SL_OUT}>&-
    LC_ALL=C exec stdbuf -oL sed "s/^/[$SL_HOST:${SLURM_PROCID:-0}]:/" < <(LC_ALL=C exec stdbuf -oL tr '\r' '\n')
  }
  SL_END=${SL_PREFIXED[0]}   # of file when nobody prefixes any more
  exec >&"${SL_PREFIXED[1]}" 2>&1 {SL_OUT}>&-
  eval "exec ${SL_PREFIXED[1]}>&-"
}

sl_hand_on_signals() {   # this shell must see the training end: a signal to the whole step is the training's to answer
  # Where Slurm tracks processes by cgroups (v1: freezer, v2: nameless) it signals a task's first process only, which is
  # this shell: it hands the signal on.
  local line name group="^[0-9]+:(freezer)?:.*/job_${SLURM_JOB_ID:-0}/step_" is_alone=''
  while read -r line; do   # without grep: 2 ms of every restart
    [[ ! $line =~ $group ]] || is_alone=yes
  done 2>/dev/null </proc/self/cgroup
  for name in TERM INT HUP USR1 USR2; do
    # shellcheck disable=SC2064  # the name of now
    trap "${is_alone:+kill -s $name \"\$SL_TRAINING\" 2>/dev/null || }:" "$name"
  done
}

sl_train() {   # SL_CODE: the exit code of the task's program
  (
    trap - INT QUIT   # ignored in what runs in the background
    sl_exec
  ) <&0 &
  SL_TRAINING=$!
  while kill -0 "$SL_TRAINING" 2>/dev/null; do wait "$SL_TRAINING"; done   # a trapped signal ends `wait` early
  # One that comes while bash collects the child makes it forget the end (5.2). Then it waits for the prefixing, which
  # waits for this shell's output to be closed, and the code is lost (255).
  exec >/dev/null 2>&1
  wait "$SL_TRAINING"
  SL_CODE=$?
}


# Sourced by a job script whose supervisor has a place on this node: its births, and what is done when it cannot live.
# shellcheck shell=bash
# shellcheck disable=SC2317,SC2329  # reached by within_patience
is_led_elsewhere() {   # whether another node's supervisor was the last that claimed to lead this job
  local host=${SAFELAUNCH_NODE:-${SLURMD_NODENAME:-$(hostname -s)}} last
  cd "$SL_RUN_DIR/claims" || return
  last=$(grep -lsF "\"action\": \"lead job ${SLURM_JOB_ID:-0}\"" [0-9]* | sort -n | tail -n 1)
  [[ $last ]] && ! grep -qF "\"host\": \"$host\"" "$last"
} 2>/dev/null

rest() {   # for $1 seconds, on the pipe $2, into which nobody writes: a `sleep` each time would be two processes
  read -r -t "$1" -u "$2" 2>/dev/null
  (($? > 128)) || sleep "$1"
}

SL_INJOB=("$SL_PYTHON" -I -S "$SL_LOCAL/lib/safelaunch/injob.py")

supervise() {   # $1: leader or standby, born again whenever it dies; its last word stands in $SL_LOCAL/final
  local leader code born pipe strikes=0
  SL_ROLE=$1
  echo "$$" >"$SL_LOCAL/shell"   # whose place this is: make_local_dir of the script
  exec 3>&2 2>>"$SL_LOCAL/leader.out"   # bash's own word on a killed leader must not wait for a frozen job output
  while [[ ! -e $SL_LOCAL/final ]]; do
    trap 'kill -USR2 "$leader" 2>/dev/null' USR2
    trap 'kill -TERM "$leader" 2>/dev/null' TERM; born=$SECONDS
    "${SL_INJOB[@]}" lead "$SL_RUN_DIR" "$SL_LOCAL" "$SL_ROLE" \
      >>"$SL_LOCAL/leader.out" 2>&1 3>&- </dev/null &
    leader=$!
    exec {pipe}<> <(:)
    until [[ -e $SL_LOCAL/leader.born ]] || ! kill -0 "$leader" 2>/dev/null; do
      if ((SECONDS - born >= SL_PATIENCE_S)); then   # its Python lies in a frozen folder
        kill -KILL "$leader"
        unsupervised "137, after $SL_PATIENCE_S s without a sign of life"
      fi
      rest 0.05 "$pipe"
    done
    exec {pipe}<&-
    [[ ! ${SL_WARNED:-} ]] || kill -USR2 "$leader" 2>/dev/null
    SL_WARNED=
    while kill -0 "$leader" 2>/dev/null; do wait "$leader"; done   # a trapped signal ends `wait` early
    # A signal that comes while bash collects the child makes it forget the child (5.2): the code is then -1, and `wait`
    # waits for another child. So this shell has none, and of a leader that was born the code says nothing.
    wait "$leader"
    code=$?
    [[ ! -e $SL_LOCAL/final ]] || break
    rm -f "$SL_LOCAL/reserve"   # it may have died because nothing can be written any more
    if ((SECONDS - born > 30)); then strikes=0; else strikes=$((strikes + 1)); fi
    # One that was killed before it was born (no memory for a moment) says nothing of the next; one that ends does.
    if ((strikes >= 5)) || [[ $code -lt 128 && ! -e $SL_LOCAL/leader.born ]]; then
      unsupervised "$code"   # comes back where another node's supervisor leads
      strikes=0
    fi
    ((strikes < 2)) || sleep 1
  done
  code=$(<"$SL_LOCAL/final")
  [[ -e $SL_LOCAL/keep ]] || rm -rf "$SL_LOCAL"   # kept while log lines wait for the shared folder
  exit "$code"
}

unsupervised() {   # no leader lives here: a training that runs goes on, else it is started plainly
  local running
  [[ ! ${SL_KILLED:-} ]] || exit 12
  if [[ $SL_ROLE == standby ]]; then
    exit 0   # the leader has another one started elsewhere
  fi
  running=$(cat "$SL_LOCAL"/attempt-*.running 2>/dev/null | tail -n 1)
  if [[ -z $running ]]; then
    tail -n 5 "$SL_LOCAL/leader.out" | tr '\r' ' ' | sed 's/^/  /'
    rm -rf "$SL_LOCAL"
    # A fresh shell: without our traps and locals.
    exec bash "$0" plain "the supervisor ended with code $1" 2>&3 3>&-
  fi
  say "the supervisor cannot go on (code $1); the training does, unsupervised"
  trap - TERM
  trap : USR2
  while [[ ! -s $running ]]; do   # its exit code appears there, on this node's own disk
    # What nobody touches for days is taken by cleaners of /tmp (tmpfiles.d(5)).
    ((SECONDS % 86400 > 2)) || find "$SL_LOCAL" -exec touch -ac {} +
    pump_of "${running%.exit}.log" >/dev/null || pump "${running%.exit}.log" &
    sleep 2
  done
  SL_CODE=$(<"$running")
  if within_patience is_led_elsewhere; then
    # The end of this script would be that of the job, and of the attempt that was started since.
    say "another node's supervisor leads this job: this one stands by"
    within_patience bring_rest
    [[ ! -e $SL_LOCAL/role ]] || sleep 30   # it dies as a standby, too
    echo standby >"$SL_LOCAL/role"
    return
  fi
  if ! within_patience bring_rest; then
    say "not all has been brought to $SL_RUN_DIR: what is left lies in $SL_LOCAL on this node"
  elif [[ ! -e $SL_LOCAL/keep ]]; then
    rm -rf "$SL_LOCAL"
  fi
  finish "$SL_CODE"
}

pump() {   # $1: an attempt's output on this node; the rest: for the pump that copies it to the run folder
  local stem=${1%.log}
  "$SL_PYTHON" -I -S "$SL_LOCAL/lib/safelaunch/node/pump.py" --spool "$1" --pid-file "$stem.pump" \
    --target "$SL_RUN_DIR/attempts/${stem##*-}/main.log" "${@:2}" >>"$SL_LOCAL/pump.out" 2>&1
}

pump_of() {   # the pump that copies $1, whoever has started it
  local pid
  pid=$(cat "${1%.log}.pump" 2>/dev/null) && grep -qsaF -e "$1" "/proc/$pid/cmdline" && echo "$pid"
}

# shellcheck disable=SC2317,SC2329  # reached by within_patience
bring_rest() {   # what couriers and pumps of dead supervisors have left on this node
  local log code
  "${SL_INJOB[@]}" bring "$SL_LOCAL/spool" "$SL_RUN_DIR" >>"$SL_LOCAL/pump.out" 2>&1 || return
  for log in "$SL_LOCAL"/attempt-*.log; do
    kill -TERM "$(pump_of "$log")" 2>/dev/null
    code=3
    while ((code == 3)); do   # the pump before still copies
      pump "$log" --once
      code=$?
    done
    ((code == 0)) || return
  done
}


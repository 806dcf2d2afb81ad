# ---- The supervisor: its place on this node. What is done when it dies: supervisor/births.sh of the library
SL_PATIENCE_S=60   # with the folders that the supervisor comes from: a frozen one must not hold the training
close_output() {   # Slurm has made it with the umask of the submission: what that leaves to others is taken from them
  local taken='go='
  [[ ! -g $SL_RUN_DIR ]] || taken='g-wx,o='   # shared with kill_switch.group, as base/io/modes.py has it
  chmod "$taken" "$SL_RUN_DIR/slurm-${SLURM_JOB_ID:-0}".*out
} 2>/dev/null

# $1, which nobody else can write; fails where it is somebody else's
make_own_folder() { (umask 077 && mkdir -p "$1") && [[ -O $1 && ! -L $1 ]] && chmod 700 "$1"; }

within_patience() {   # "$@" for SL_PATIENCE_S at most: a frozen folder must hold neither the training nor the job
  local code pipe
  exec {pipe}< <("$@" >&2; echo "$?")
  read -r -t "$SL_PATIENCE_S" -u "$pipe" code || code=124
  exec {pipe}<&-
  return "$code"
}

note_end() {   # $1: the training's exit code, as a line of the journal: no supervisor is left that would write it
  local host=${SAFELAUNCH_NODE:-${SLURMD_NODENAME:-$(hostname -s)}} now gen line
  now=$(date +%s)
  # Behind all that a supervisor of this job has written: its generation is no higher, and its own count lower.
  gen=$(cd "$SL_RUN_DIR/claims" 2>/dev/null && printf '%s\n' [0-9]* | sort -n | tail -n 1)
  [[ $gen =~ ^[0-9]{1,9}$ ]] || gen=0
  printf -v line '{"v":1,"t":%d,"gen":%d,"seq":%d,"host":"%s","event":"ended_alone","job":"%s","exit_code":%d' \
    "$now" "$((10#$gen))" "$now" "$host" "${SLURM_JOB_ID:-0}" "$1"
  line+=",\"restart_count\":${SLURM_RESTART_COUNT:-0}}"
  [[ ! -g $SL_RUN_DIR/journal ]] || umask 027   # kill_switch.group reads it
  set -o noclobber   # a new file, and never through a link; this shell is a child of the script's
  echo "$line" >"$SL_RUN_DIR/journal/$(printf %06d "$((10#$gen))")-$host-$$.jsonl"
} 2>/dev/null

make_local_dir() {   # in $1, a folder on this node's own disk that nobody else can write; its path in SL_LOCAL
  local mine=$1/safelaunch-$UID
  # A requeued job keeps its id: what it left here the last time, its last word included, is another job's.
  SL_LOCAL=$mine/$SL_RUN_ID-${SLURM_JOB_ID:-0}${SLURM_RESTART_COUNT:+.$SLURM_RESTART_COUNT}
  SL_LOCAL+=-${SAFELAUNCH_NODE:-$(hostname -s)}
  if ! make_own_folder "$mine" || ! make_own_folder "$SL_LOCAL"; then
    SL_LOCAL=$(mktemp -d "$mine.XXXXXX") || return   # whoever comes first to the name must not cost the supervisor
    [[ -O $mine && ! -L $mine ]] || echo "$mine" >"$SL_LOCAL/taken"
  fi
  # The batch script's shell, where it led before, stands by itself: who ended first would take the other's folder.
  [[ ! -s $SL_LOCAL/shell ]] || ! kill -0 "$(<"$SL_LOCAL/shell")" || exit 0
  (umask 077 && mkdir -p "$SL_LOCAL/lib" && cp "$0" "$SL_LOCAL/job.sbatch") || { rm -rf "$SL_LOCAL" && return 1; }
}

copy_library() {   # the supervisor's packages to local disk, and space for one that is born again when the disk is full
  within_patience cp -Rp "${SL_LIBRARY[@]}" "$SL_LOCAL/lib/" >"$SL_LOCAL/copy.out" 2>&1
  case $? in
  0) ;;
  1) ! grep -qv __pycache__ "$SL_LOCAL/copy.out" || return ;;   # another user's umask closes compiled files: no loss
  124) echo "its library was not copied within $SL_PATIENCE_S s" >>"$SL_LOCAL/copy.out" && return 1 ;;
  *) return 1 ;;
  esac
  head -c 4M /dev/zero >"$SL_LOCAL/reserve" 2>>"$SL_LOCAL/copy.out"   # its outbox takes 1 MiB
}

settle() {   # the supervisor in the first place on this node that takes it; SL_WHY: why none does
  local room rooms=("${SAFELAUNCH_LOCAL_DIR:-/tmp}")
  [[ ${SAFELAUNCH_LOCAL_DIR:-} ]] || rooms+=(/var/tmp /dev/shm)   # where /tmp is full, or closed
  for room in "${rooms[@]}"; do
    if ! make_local_dir "$room" 2>/dev/null; then
      SL_WHY=${SL_WHY:-no folder of its own under $room}
    elif copy_library; then
      SL_WHY=
      [[ ! -e $SL_LOCAL/taken ]] || say "BEWARE: $(<"$SL_LOCAL/taken") on this node belongs to" \
        "$(stat -c %U "$(<"$SL_LOCAL/taken")"), not to you; the supervisor uses $SL_LOCAL"
      return 0
    else
      SL_WHY=${SL_WHY:-$(tail -n 1 "$SL_LOCAL/copy.out")}
      rm -rf "$SL_LOCAL"
      ((SECONDS < SL_PATIENCE_S)) || return 1   # the folder that it comes from is frozen
    fi
  done
  SL_WHY=${SL_WHY:-no space on this node}
  return 1
}


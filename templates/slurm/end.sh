plain() {   # $1: why. The training without a supervisor, once, as a plain sbatch script would run it
  say "no supervisor can run on this node: training without one ($1)"
  trap : USR2   # the warning before the time limit has nobody to go to, and must not end this shell
  SL_WORDS=()   # where an earlier job's supervisor would have resumed; `read` has a deadline, which `mapfile` has not
  while IFS= read -r -d '' -t "$SL_PATIENCE_S" SL_WORD; do
    SL_WORDS+=("$SL_WORD")
  done < <(cat "$SL_RUN_DIR/resume.args" 2>/dev/null)
  # Quoted: a line end in the name of a checkpoint would start a line, which could read like a word of Slurm.
  ((${#SL_WORDS[@]} == 0)) || say "it resumes with:$(printf ' %q' "${SL_WORDS[@]}")"
  attempt "${SL_WORDS[@]}"
  finish "$?"
}

finish() {   # $1: the training's exit code, which becomes the job's
  say "the training has ended with exit code $1"
  within_patience note_end "$1" || say "that could not be written to $SL_RUN_DIR/journal"
  (($1 == 0 || SL_PRESERVE_S == 0)) || preserve_site "$1"
  exit "$1"
}

preserve_site() {   # $1: exit code. Keeps the nodes of a failed training for people to look, until they are released
  local end=$((SECONDS + SL_PRESERVE_S))
  say "the training has failed with exit code $1. Its nodes are kept for $SL_PRESERVE_S s, to look at what happened:"
  say "  get in:    srun --overlap --jobid=${SLURM_JOB_ID:-?} --nodelist=NODE --pty bash"
  say "  give back: touch $SL_RUN_DIR/control/release   (or: scancel ${SLURM_JOB_ID:-?})"
  while ((SECONDS < end)) && [[ ! -e $SL_RUN_DIR/control/release && ! -e $SL_KILL_FILE && ! -L $SL_KILL_FILE ]]; do
    sleep 2
  done
}

say() { printf 'safelaunch %s %s: %s\n' "$(date +%FT%T%:z)" "$(hostname -s)" "$*"; }


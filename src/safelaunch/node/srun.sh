# Sourced by a job script that is called as `srun`, from a user's own script: each task of the step gets a node guard.
# shellcheck shell=bash disable=SC2015,SC2034,SC2154  # what is not set here is the job script's
# Of srun's options, those without a value, and those with one in a word of its own: srun(1), 22.05 to 24.11.
SL_SRUN_FLAGS=' --contiguous --disable-status --exact --help --label --multi-prog --no-allocate --no-requeue --overcommit
 --overlap --oversubscribe --preserve-env --pty --quiet --quit-on-interrupt --reboot --spread-job --test-only
 --unbuffered --usage --use-min-nodes --verbose --version --whole --exclusive --immediate --kill-on-bad-exit --nice
 --no-kill --propagate --resv-ports --external-launcher --bcast --compress --send-libs --x11 --interactive '
SL_SRUN_VALUED=' --account --accel-bind --acctg-freq --bb --bbf --bcast-exclude --chdir
 --cluster-constraint --clusters --comment --constraint --container --container-id --core-spec
 --cores-per-socket --cpu-bind --cpu-freq --cpus-per-gpu --cpus-per-task --deadline --delay-boot --dependency
 --distribution --epilog --error --exclude --export --extra --extra-node-info --gpu-bind --gpu-freq --gpus
 --gpus-per-node --gpus-per-socket --gpus-per-task --gres --gres-flags --het-group --hint --input --job-name --jobid
 --licenses --mail-type --mail-user --max-threads --mcs-label --mem --mem-bind --mem-per-cpu --mem-per-gpu --mincpus
 --mpi --msg-timeout --network --nodefile --nodelist --nodes --ntasks --ntasks-per-core --ntasks-per-gpu
 --ntasks-per-node --ntasks-per-socket --open-mode --output --partition --power --prefer --priority --profile --prolog
 --qos --relative --reservation --signal --slurmd-debug --sockets-per-node --switches --task-epilog
 --task-prolog --thread-spec --threads --threads-per-core --time --time-min --tmp --tres-bind --tres-per-task --treewidth
 --uid --gid --wait --wckey '

srun_option() {   # $1: a word such as --nodes=2; SL_NAME: its long name, abbreviations in full; fails where unknown
  local name=${1%%=*} all="$SL_SRUN_FLAGS$SL_SRUN_VALUED" found
  all=${all//$'\n'/}
  if [[ $all == *" $name "* ]]; then
    SL_NAME=$name
    return 0
  fi
  found=${all#*" $name"}   # getopt_long(3) takes an abbreviation of one option only
  [[ $found != "$all" && $found != *" $name"* ]] || return 1
  SL_NAME=$name${found%% *}
}

script_srun() {   # "$@": of the user's srun. Runs it with a node guard for each task, or as it is
  local words=() excluded=${SAFELAUNCH_EXCLUDE:-} is_alone='' bare='' pwd='' stem word srun=${SAFELAUNCH_SRUN:-srun}
  local ours="SAFELAUNCH_MARK,SAFELAUNCH_GUARD,SAFELAUNCH_GUARD_CODE,SAFELAUNCH_BOOT,SAFELAUNCH_TOKEN"
  ours+=",SAFELAUNCH_CONTROL,SAFELAUNCH_ADDRESSES,SAFELAUNCH_RECORD,SAFELAUNCH_ATTEMPT,SAFELAUNCH_LEASE_S"
  ours+=",SAFELAUNCH_PYTHON,SAFELAUNCH_STEP,SAFELAUNCH_BARE,SAFELAUNCH_SIGNAL_TO,SAFELAUNCH_RESUME_PATH"
  ours+=",SAFELAUNCH_RESUME_STEP,SAFELAUNCH_LAUNCHER,SAFELAUNCH_PWD,SAFELAUNCH_KEEPS_JOB"
  SL_PLAIN=("$srun" "$@")
  printf -v stem '%s/attempt-%04d' "${SAFELAUNCH_WRAPPER%/bin/srun}" "${SAFELAUNCH_ATTEMPT:-0}"
  PATH=${PATH//"${0%/*}:"/}   # whatever the script has done to its environment, the real one must be found
  # In another job, or without a supervisor it is not ours.
  if [[ ! ${SAFELAUNCH_ROOT:-} || ${SAFELAUNCH_MARK:-} != *".${SLURM_JOB_ID:-0}."* ]]; then
    exec -a srun "${SL_PLAIN[@]}"
  fi
  [[ ! ${SAFELAUNCH_STEP:-} ]] || plain_srun   # within a step
  [[ ! ${SAFELAUNCH_OWN_LOG:-} ]] || own_log_srun "$@"
  # What srun reads as options from the environment (srun(1)); those of the command line stand behind, and win.
  word=${SRUN_EXPORT_ENV-${SLURM_EXPORT_ENV-}}
  [[ ! $word ]] || set -- "--export=$word" "$@"
  [[ ! ${SLURM_LABELIO:-}${SLURM_STDOUTMODE:-}${SRUN_OUTPUT:-} ]] || bare=yes
  read_sharing
  read_environ "$$"
  for word in "${SL_ENVIRON[@]}"; do
    [[ $word != PWD=* ]] || pwd=${word#*=}
  done
  read_srun "$@"
  guard_secrets && load_library "${SAFELAUNCH_WRAPPER%/bin/srun}" && [[ ${SAFELAUNCH_GUARD:-} ]] || plain_srun
  [[ ! $excluded ]] || words+=("--exclude=$excluded")
  # Without --overlap a step would wait for one before it that has not ended for Slurm yet.
  [[ $SAFELAUNCH_ATTEMPT == 1 || ${SAFELAUNCH_OVERLAP:-} == no || $is_alone ]] || words=(--overlap "${words[@]}")
  # What the script reads itself ($(srun hostname), 2>errors) must stay as it is; prefixed lines are of both streams.
  [[ /dev/fd/1 -ef $stem.log && /dev/fd/2 -ef $stem.log ]] || bare=yes
  export SAFELAUNCH_STEP=yes SAFELAUNCH_BARE=$bare SAFELAUNCH_PWD=$pwd
  note_srun guarded
  prepare_on_node
  # bash by its path: --export=NONE leaves no PATH.
  exec -a srun "$srun" "${SL_SRUN_EXTRA[@]}" "${words[@]}" \
    /bin/bash -c "$SL_ON_EACH_NODE" safelaunch-node "${SL_PROGRAM[@]}"
}

read_sharing() {   # is_alone: the environment says how the step shares processors. `force`: beside a dead node's step
  if [[ ${SAFELAUNCH_OVERLAP:-} != force ]]; then
    [[ ! ${SLURM_EXACT:-}${SLURM_EXCLUSIVE:-}${SLURM_OVERLAP:-} ]] || is_alone=yes
  elif [[ ${SLURM_EXCLUSIVE:-} ]]; then
    unset SLURM_EXCLUSIVE
    export SLURM_EXACT=1   # which srun takes beside --overlap
  fi
}

read_srun() {   # "$@": of the user's srun. words, SL_PROGRAM; a plain srun where they cannot be told apart
  local word value name
  while (($#)) && [[ $1 == -?* ]]; do
    word=$1 value=
    shift
    [[ $word != -- ]] || break
    if [[ $word == --* ]]; then
      srun_option "$word" || plain_srun   # of another release, or of a plugin
      name=$SL_NAME
      if [[ $word == *=* ]]; then
        value=${word#*=}
      elif [[ ${SL_SRUN_VALUED//$'\n'/} == *" $name "* ]]; then
        value=${1-}
        word+="=$value"
        (($#)) && shift
      fi
    else
      short_option "$word"
      if [[ $SL_LETTER != [EHhkKOQsuvVXZlI] && ! $value ]]; then
        value=${1-}
        word+=$value
        (($#)) && shift
      fi
    fi
    take_option
  done
  (($#)) || plain_srun
  SL_PROGRAM=("$@")
  for word; do
    [[ $word != : ]] || plain_srun   # behind it stands another program, with options of its own
  done
}

short_option() {   # $1: a word such as -lN2. SL_LETTER: the last option of it; name: its long name; value: its own
  local letters=${1#-}
  while [[ $letters == [EHlkKOQsuvXZ]?* && $letters != [kK]?* ]]; do letters=${letters:1}; done
  SL_LETTER=${letters:0:1}
  [[ $SL_LETTER == [EHhkKOQsuvVXZlI] ]] || value=${letters:1}
  case $SL_LETTER in
  x) name=--exclude ;;
  l) name=--label ;;
  o) name=--output ;;
  Z) name=--no-allocate ;;
  h) name=--help ;;
  V) name=--version ;;
  *) name=-$SL_LETTER ;;
  esac
  [[ ${1#-} != *l* || $1 != -[EHkKOQsuvXZl]* ]] || bare=yes
}

take_option() {   # `word` of `name` with `value`, for the guarded srun
  case $name in
  --exclude)
    excluded=${value}${excluded:+,$excluded}
    return
    ;;
  --export)
    case $value in
    ALL | ALL,*) ;;
    NONE | NIL) word=--export=$ours pwd='' ;;
    *)
      word=--export=$value,$ours
      case ,$value, in
      *,PWD,*) ;;
      *,PWD=*) pwd=,$value pwd=${pwd#*,PWD=} pwd=${pwd%%,*} ;;
      *) pwd='' ;;
      esac
      ;;
    esac
    ;;
  --exact | --exclusive | --overlap)
    if [[ ${SAFELAUNCH_OVERLAP:-} != force ]]; then   # the step of a node that has died keeps its processors
      is_alone=yes
    elif [[ $name == --exclusive ]]; then
      word=--exact   # which srun takes beside --overlap
    fi
    ;;
  --label | --output) bare=yes ;;
  --jobid) [[ $value == "${SLURM_JOB_ID:-0}" ]] || plain_srun ;;
  --pty | --multi-prog | --het-group | --no-allocate | --help | --usage | --version | --test-only)
    plain_srun
    ;;
  esac
  words+=("$word")
}

own_log_srun() {   # "$@": of the user's srun. Runs it until its last line is in the log, which the script reads next
  local child code log
  # shellcheck disable=SC2031
  (
    trap - INT QUIT   # ignored in what runs in the background
    SAFELAUNCH_OWN_LOG='' exec "$SAFELAUNCH_WRAPPER" "$@"
  ) <&0 &
  child=$!
  for code in TERM INT HUP QUIT USR1 USR2 CONT; do
    # shellcheck disable=SC2064  # the name of now
    trap "kill -s $code $child 2>/dev/null" "$code"
  done
  while kill -0 "$child" 2>/dev/null; do wait "$child"; done   # a trapped signal ends `wait` early
  wait "$child"
  code=$?
  printf -v log '%s/attempts/%04d/main.log' "$SL_RUN_DIR" "$SAFELAUNCH_ATTEMPT"
  for ((child = 0; child < 100; child++)); do
    # shellcheck disable=SC2046  # two numbers
    set -- $(stat -c %s "$stem.log" "$log" 2>/dev/null)
    ((${1:-0} > ${2:-0})) || break
    sleep 0.02
  done
  exit "$code"
}

note_srun() {   # $1: guarded, or plain; by these words the fence knows what may be left (decide/ends/fence.py)
  [[ ! -e $stem.sruns ]] || echo "$1" >>"$stem.sruns" || rm -f "$stem.sruns"   # without the file it asks each node
} 2>/dev/null

plain_srun() {   # the user's srun as it is: its tasks have no guards
  note_srun plain
  exec -a srun "${SL_PLAIN[@]}"
}

read_environ() {   # $1: a pid; SL_ENVIRON: NAME=VALUE of all that it was started with
  local word
  SL_ENVIRON=()
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)); then
    mapfile -d '' SL_ENVIRON <"/proc/$1/environ"
  else
    while IFS= read -r -d '' word; do SL_ENVIRON+=("$word"); done <"/proc/$1/environ"
  fi
} 2>/dev/null

guard_secrets() {   # what the guards of a step need, from the guard of the script, which keeps it out of the script
  local word
  read_environ "$SAFELAUNCH_ROOT"
  for word in "${SL_ENVIRON[@]}"; do
    case $word in   # ${word%%=*} of the guard's text takes a millisecond
    SAFELAUNCH_GUARD=* | SAFELAUNCH_GUARD_CODE=* | SAFELAUNCH_TOKEN=* | SAFELAUNCH_CONTROL=* | SAFELAUNCH_ADDRESSES=*)
      export "${word?}"
      ;;
    esac
  done
  [[ ${SAFELAUNCH_GUARD:-} && ${SAFELAUNCH_TOKEN:-} ]]
}

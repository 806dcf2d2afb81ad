sl_prepare() {   # the launcher, in a shell behind `setup:`; its ranks get what that has set
  local setup='' here words
  printf -v here 'SL_HOST=%q; ' "$SL_HOST"
  [[ ! $SAFELAUNCH_SETUP$SAFELAUNCH_LOGIN_SHELL ]] || setup=yes
  ! declare -F sl_fill_in >/dev/null || sl_fill_in
  sl_text sl_name_ranks sl_check_world sl_begin sl_resume ${setup:+sl_take_over} sl_run
  sl_end
  SL_TEXT=$here$SL_TEXT
  if [[ $SAFELAUNCH_LAUNCHER == deepspeed ]]; then   # which prints its command line, a page of ours for each rank
    export SAFELAUNCH_RANK=$SL_TEXT
    SL_TEXT='exec bash -c "unset SAFELAUNCH_RANK; $SAFELAUNCH_RANK" training "$@"'
  fi
  set -f
  IFS=$'\n'
  # shellcheck disable=SC2206  # a word of each line
  words=($SAFELAUNCH_LAUNCH_ARGS)
  set +f
  unset IFS
  [[ $SAFELAUNCH_LAUNCHER == custom ]] || words+=(--no_python)
  words+=(bash -c "$SL_TEXT" training "$@")
  sl_text sl_name_node ${setup:+sl_setup sl_hand_over} sl_start_directly sl_start_ranks
  SL_ARGV=(bash ${SAFELAUNCH_LOGIN_SHELL:+-l} -c "$here$SL_TEXT" launch "${words[@]}")
  SAFELAUNCH_BARE=yes   # the launcher's own lines, or sl_name_ranks, name the rank
}
sl_name_node() {   # "[host:node]:" before each line of setup's and of the launcher itself, which is no rank's
  if type -P stdbuf tr sed >/dev/null && [[ -e /dev/fd/2 ]]; then
    exec 2> >(trap "" TERM INT HUP USR1 USR2
      LC_ALL=C exec stdbuf -oL sed "/^\[$SL_HOST:[0-9]*\]:/!s/^/[$SL_HOST:node]:/" >&2 \
        < <(LC_ALL=C exec stdbuf -oL tr '\r' '\n'))
  fi
}
SL_ON_NODE+=(sl_prepare sl_name_node)


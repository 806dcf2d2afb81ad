sl_name_ranks() {   # "[host:rank]:" before each line of a rank whose launcher prints none. It outlives the rank
  if [[ ! ${TORCHELASTIC_RUN_ID:-} ]] && type -P stdbuf tr sed >/dev/null; then
    # shellcheck disable=SC2261
    exec > >(trap "" TERM INT HUP USR1 USR2; LC_ALL=C exec stdbuf -oL sed "s/^/[$SL_HOST:${LOCAL_RANK:-0}]:/" < <(LC_ALL=C exec stdbuf -oL tr '\r' '\n')) 2>&1
  fi
}
SL_ON_NODE+=(sl_name_ranks)


sl_setup() {   # `setup:`, without arguments: a file that it sources would take ours for its own
  trap 'echo "safelaunch: setup failed with exit code $? on $(hostname -s)" >&2' EXIT
  SL_WORDS=("$@")
  set --
  eval "$SAFELAUNCH_SETUP"   # not followed by ||, which would switch its "set -e" off
  SL_CODE=$?
  [[ $SL_CODE == 0 ]] || exit "$SL_CODE"
  {
    trap - EXIT
    # Before 4.4 an empty array, such as RESUME_ARGS can be, is an error under "set -u".
    ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || set +u
    set -- "${SL_WORDS[@]}"
    unset SL_WORDS SL_CODE
  } 2>/dev/null   # of its "set -x"
}
SL_ON_NODE+=(sl_setup)


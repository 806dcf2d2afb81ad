sl_hand_over() {   # what setup has set without export, its functions and options, to the shells of the ranks
  # Bash itself writes it down, and other users cannot read it in the environment. A string takes 128 KiB (execve(2)).
  { SL_SET=$-; set +efux; } 2>/dev/null   # of its "set -x" nothing below may be seen: values can be secret
  export SAFELAUNCH_SHELL
  SAFELAUNCH_SHELL=$(
    set -f
    unset IFS
    # shellcheck disable=SC2046  # names
    set -- $(exec bash -c "compgen -v; compgen -A function")
    SL_HAS=" $* PIPESTATUS BASH_REMATCH RESUME_ARGS SL_HOST "
    SL_OURS="@(SL_SET|SL_HAS|SL_OURS|SL_NAME|SL_TEXT|SL_MORE)"
    SL_TEXT=$(for SL_NAME in $(compgen -v); do
      # shellcheck disable=SC2053  # a pattern
      [[ $SL_HAS == *" $SL_NAME "* || $SL_NAME == $SL_OURS ]] || declare -p "$SL_NAME"
    done 2>/dev/null)   # of one that is declared and not set old releases say "not found"
    # shellcheck disable=SC2046
    set -- $(compgen -A function)
    SL_MORE=${1:+$(for SL_NAME; do
      [[ $SL_HAS == *" $SL_NAME "* ]] || declare -f "$SL_NAME"
    done)}
    SL_SET=${SL_SET//[!efux]/}
    SL_SET=${SL_SET:+set -$SL_SET}
    [[ ! -o pipefail ]] || SL_SET="set -o pipefail; $SL_SET"
    LC_ALL=C
    ((${#SL_TEXT} + ${#SL_MORE} < 120000)) || SL_MORE=
    if ((${#SL_TEXT} > 120000)); then
      SL_TEXT=
      echo "safelaunch: variables that setup sets without export are too long to be handed to the command" >&2
    fi
    printf "%s\n" "$SL_TEXT" "$SL_MORE" "$SL_SET"
  )
}
sl_take_over() { eval "unset SAFELAUNCH_SHELL; ${SAFELAUNCH_SHELL-}"; }
SL_ON_NODE+=(sl_hand_over sl_take_over)


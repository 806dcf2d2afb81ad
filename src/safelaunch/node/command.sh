# Sourced by a job script's `attempt` beside its library: the shell of `command:` gives its place to the training. A
# shell does that for the last command of its argument, not for one of `eval`. So SL_LAST stands before that one in the
# text: it keeps the words, and the last line of the argument gives them back.
# shellcheck shell=bash disable=SC2016,SC2034,SC2317,SC2329
if [[ ${SL_LAST:-} && $SL_COMMAND == *"${SL_LAST#*-- }" ]]; then   # not where somebody has edited one of them
  SL_COMMAND="${SL_COMMAND%"${SL_LAST#*-- }"}SL_LAST $SL_LAST"
fi

sl_begin() {
  SL_LAST() {   # "$@": its line, the variables set for it alone, --, the words
    SL_WAS=("$?")
    while shift && [[ $1 != -- ]]; do SL_SETS+=("$1=${!1}"); done
    shift
    SL_KEPT=("$@")
    if shopt -q expand_aliases && [[ ${1:-} && ${BASH_ALIASES[${1:--}]+set} ]]; then
      SL_WORDS=("${@:2}")
      SL_KEPT=(eval "$1 "'${SL_WORDS[@]+"${SL_WORDS[@]}"}')
    fi
  } 2>/dev/null
  SL_KEPT=() SL_SETS=() SL_WAS=()
  printf -v SL_NL '\n'
}
sl_resume() { { RESUME_ARGS=("$@"); } 2>/dev/null; }
sl_run() {
  eval "$SL_NL$SAFELAUNCH_COMMAND"
  SL_CODE=$?
  [[ $SL_CODE == 0 && ${SL_KEPT+set} ]] || exit "$SL_CODE"
  {
    [[ ! ${SL_SETS+set} ]] || export "${SL_SETS[@]}" || :
    unset SL_CODE SL_SETS SL_NL SL_HOST
    unset -f SL_LAST
    (exit "${SL_WAS[0]}") && :   # the exit code that it would see
  } 2>/dev/null
}
sl_end() {   # SL_TEXT in one line, and the last command as far below as in `command:`: its lines keep their numbers
  local pad
  for pad in '    ' '        ' '            ' '                '; do   # the last statement of a block has no ;
    SL_TEXT=${SL_TEXT//$'\n'"$pad}"/; \}}
  done
  pad=
  SL_TEXT=${SL_TEXT//$'\n'/ }
  if [[ $SAFELAUNCH_COMMAND =~ SL_LAST\ ([0-9]+)' ' ]]; then
    printf -v pad '%*s' "$((BASH_REMATCH[1] - 1))" ''
  fi
  SL_TEXT+=$'\n'${pad// /$'\n'}'"${SL_KEPT[@]}"'
}
SL_ON_NODE+=(sl_begin sl_resume sl_run sl_end)

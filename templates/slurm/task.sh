sl_prepare_task() {   # `setup:` and `command:` in one shell
  local setup=''
  [[ ! $SAFELAUNCH_SETUP$SAFELAUNCH_LOGIN_SHELL ]] || setup=sl_setup
  sl_task
  sl_text sl_begin ${setup:+"$setup"} sl_resume sl_ray sl_run
  sl_end
  SL_ARGV=(bash ${SAFELAUNCH_LOGIN_SHELL:+-l} -c "$SL_TEXT" training "$@")
}
sl_prepare() { sl_prepare_task "$@"; }
SL_ON_NODE+=(sl_prepare sl_prepare_task)


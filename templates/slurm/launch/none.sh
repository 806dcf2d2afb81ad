sl_task() {   # on each node: `setup:` and `command:` run once, in one shell
  :
}
SL_ON_NODE+=(sl_task)


# ---- The shell of `command:`, whose text comes in the environment: every user of the node sees arguments (`ps`).
# node/command.sh of the library has others of these, by which the training takes the place of its shell (SL_LAST).
SL_PART=command.sh
sl_resume() { RESUME_ARGS=("$@"); }
sl_run() { eval "$SAFELAUNCH_COMMAND"; }
sl_end() { :; }
SL_ON_NODE+=(sl_resume sl_run sl_end)


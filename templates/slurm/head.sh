#!/bin/bash
# A training under safelaunch. The upper half is the job, as one would write it by hand; the lower half supervises it
# and starts it again when it fails. Where no supervisor can run, the job trains all the same. See docs/script.md.
# shellcheck disable=SC1090,SC1091,SC2015,SC2016,SC2034,SC2317,SC2329
# >>> directives
# <<< directives

# >>> values (data only: quoted, never run). SL_: no variable of the training's own is ever overwritten
# <<< values
set -o pipefail


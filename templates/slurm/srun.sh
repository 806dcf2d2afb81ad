if [[ ${0##*/} == srun ]]; then   # called by your script: node/srun.sh of the library reads its options, and SL_SRUN_EXTRA
  . "${0%/bin/srun}/lib/safelaunch/node/srun.sh" && script_srun "$@"
  exec -a srun "${SAFELAUNCH_SRUN:?}" "$@"
fi


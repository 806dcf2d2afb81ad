"""What stands for sbatch, scontrol, squeue, sacct and scancel in a user's own script (docs/scripts.md).

Each is a stub first on the script's PATH, which starts `main.py`, and that `command.py`. It reads the facts of the
attempt (`ownjob.py`), which the supervisor writes beside the stubs at each launch. `submission.py` sees what sbatch
submits, by the words that `sbatchcall.py` reads; `links.py` keeps what the run goes on with, for the supervisor.
`scontroltext.py` and `squeuetext.py` change what Slurm says of the run's own job into what it would say under sbatch.
Whatever fails here, the real command runs as it is.
"""

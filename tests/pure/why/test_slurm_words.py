"""What srun, sbatch and slurmstepd say: the category of each, or an honest "unknown"."""

from __future__ import annotations

from tests.pure.why.judged import judge_text
from tests.tables import each

WORDS: list[tuple[str, str]] = [
    ("config",
     "srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x0003.\n"
     "srun: error: Task launch for StepId=171.0 failed on node n0: Unable to satisfy cpu bind request\n"
     "srun: error: Application launch failed: Unable to satisfy cpu bind request"),
    ("config",
     "srun: error: Task launch for StepId=171.0 failed on node n0: Unable to satisfy cpu bind request"),
    ("config",
     "slurmstepd-n0: error: task[0] unable to set taskset '0x3'"),
    ("config",
     'srun: error: Unable to open "/logs/x.out": No such file or directory'),
    ("config",
     "slurmstepd-n0: error: Could not open stdout file /logs/x_0.out: No such file or directory\n"
     "srun: error: n0: task 0: Exited with exit code 1"),
    ("config",
     "srun: Step 171 creation temporarily disabled, retrying (Requested nodes are busy)\n"
     "srun: Cancelled pending step with signal 2\n"
     "srun: error: Unable to create step for job 171: Job/step already completing or completed"),
    ("config",
     "srun: First task exited 60s ago\n"
     "srun: StepId=224.11 task 1: running\n"
     "srun: StepId=224.11 task 0: exited\n"
     "srun: Terminating StepId=224.11\n"
     "slurmstepd-n0: error: *** STEP 224.11 ON n0 CANCELLED AT 2026-08-12T02:06:12 ***\n"
     "srun: error: n0: task 1: Killed"),
    ("config",
     "step 9/20 loss 2.1\n"
     "srun: First task exited 60s ago\n"
     "srun: Terminating StepId=224.11\n"
     "slurmstepd: error: *** STEP 224.11 ON n0 CANCELLED AT 2026-08-12T02:06:12 ***"),
    ("unknown",
     "srun: error: n0: task 0: Exited with exit code 1\n"
     "srun: First task exited 60s ago\n"
     "srun: Terminating StepId=224.11"),
    ("user_code",
     "Traceback (most recent call last):\n"
     '  File "/home/u/train.py", line 7, in main\n'
     "    go()\n"
     "KeyError: 'x'\n"
     "srun: error: n0: task 0: Exited with exit code 1\n"
     "srun: First task exited 60s ago\n"
     "srun: Terminating StepId=224.11\n"
     "slurmstepd: error: *** STEP 224.11 ON n0 CANCELLED AT 2026-08-12T02:06:12 ***"),
    ("config",
     "srun: fatal: cpus-per-task set by two different environment variables SLURM_CPUS_PER_TASK=8 "
     "!= SLURM_TRES_PER_TASK=cpu=1"),
    ("config",
     "srun: Job 171 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
     "srun: Job 171 step creation still disabled, retrying (Requested nodes are busy)\n"
     "slurmstepd: error: *** JOB 171 ON n0 CANCELLED AT 2026-08-12T02:06:12 DUE TO TIME LIMIT ***"),
    ("time_limit",
     "srun: Job 171 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
     "srun: Step created for StepId=171.1\n"
     "step 1/20 loss 2.1\n"
     "step 2/20 loss 2.1\n"
     "slurmstepd: error: *** JOB 171 ON n0 CANCELLED AT 2026-08-12T02:06:12 DUE TO TIME LIMIT ***"),
    ("config",
     "srun: Job 171 step creation temporarily disabled, retrying (Requested nodes are busy)"),
    ("node_failure",
     "srun: Job 171 step creation still disabled, retrying (Required node not available (down, "
     "drained or reserved))"),
    ("config",
     "srun: Job step creation temporarily disabled, retrying (Memory required by task is not "
     "available)"),
    ("config",
     "srun: error: Unable to create step for job 171: More processors requested than permitted"),
    ("config",
     "srun: error: Unable to create step for job 171: Memory required by task is not available"),
    ("config",
     "srun: error: Unable to create step for job 171: Requested node configuration is not "
     "available"),
    ("config",
     "srun: error: Unable to create step for job 171: Invalid generic resource (gres) "
     "specification"),
    ("config",
     "srun: error: Unable to create step for job 171: Job/step already completing or completed"),
    ("config",
     "srun: error: Unable to create step for job 171: Invalid job id specified"),
    ("node_failure",
     "srun: error: Unable to create step for job 171: Zero Bytes were transmitted or received"),
    ("config",
     "srun: error: Unable to allocate resources: Requested node configuration is not available"),
    ("config",
     "srun: error: Unable to allocate resources: Invalid account or account/partition combination "
     "specified"),
    ("config",
     "srun: error: Unable to confirm allocation for job 171: Invalid job id specified"),
    ("config",
     "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 171"),
    ("config",
     'srun: error: Invalid numeric value "abc" for --ntasks.'),
    ("config",
     'srun: fatal: Invalid numeric value "0" for --cpus-per-task.'),
    ("config",
     'sbatch: error: Invalid numeric value "1o" for --nodes.'),
    ("config",
     "srun: error: Invalid --distribution specification"),
    ("config",
     "srun: error: invalid number of tasks (-n abc)"),
    ("config",
     "srun: unrecognized option '--gpus_per_node=4'\n"
     'Try "srun --help" for more information'),
    ("config",
     "srun: error: Ntasks-per-node must be greater than zero"),
    ("config",
     "srun: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
    ("config",
     "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually "
     "exclusive."),
    ("config",
     "srun: fatal: No command given to execute."),
    ("config",
     "srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files\n"
     "srun: error: cannot find mpi plugin for mpi/pmix\n"
     "srun: error: MPI: Cannot create context for mpi/pmix\n"
     "srun: error: MPI: Unable to load any plugin\n"
     "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types"),
    ("environment",
     "slurmstepd: error: execve(): python3.12: No such file or directory\n"
     "srun: error: n0: task 0: Exited with exit code 2"),
    ("environment",
     "slurmstepd: error: execve(): ./train.sh: Permission denied\n"
     "srun: error: n0: task 0: Exited with exit code 13"),
    ("environment",
     "slurmstepd: error: execve(): /home/u/train.py: Exec format error\n"
     "srun: error: n0: task 0: Exited with exit code 8"),
    ("unknown",
     "slurmstepd: error: couldn't chdir to `/scratch/u': No such file or directory: going to /tmp "
     "instead"),
    ("node_failure",
     "srun: error: task 0 launch failed: Cannot allocate memory"),
    ("node_failure",
     "srun: error: task 0 launch failed: Invalid job credential"),
    ("node_failure",
     "srun: error: task 0 launch failed: Slurmd could not chdir to requested work directory"),
    ("node_failure",
     "srun: error: task 0 launch failed: Error configuring interconnect"),
    ("node_failure",
     "srun: error: Task launch for StepId=171.0 failed on node n1: Job credential expired"),
    ("node_failure",
     "srun: error: Task launch for StepId=171.0 failed on node n1: Socket timed out on send/recv "
     "operation"),
    ("node_failure",
     "srun: error: Application launch failed: Invalid job credential\n"
     "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."),
    ("unknown",
     "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."),
    ("config",
     "srun: error: Unable to open file logs/out.txt: No such file or directory"),
    ("config",
     "slurmstepd: error: Could not open stdout file /scratch/logs/out_171.txt: No such file or "
     "directory\n"
     "slurmstepd: error: IO setup failed: No such file or directory"),
    ("config",
     "slurmstepd: error: Could not open stdout file /scratch/logs/out_171.txt: Permission denied"),
    ("node_failure",
     "slurmstepd: error: IO setup failed: Slurmd could not connect IO"),
    ("node_failure",
     "srun: error: If munged is up, restart with --num-threads=10\n"
     'srun: error: Munge encode failed: Failed to access "/var/run/munge/munge.socket.2": No such '
     "file or directory\n"
     "srun: error: slurm_send_node_msg: g_slurm_auth_create: REQUEST_JOB_STEP_CREATE has "
     "authentication error"),
    ("node_failure",
     "srun: error: Protocol authentication error"),
    ("unknown",
     "slurmstepd: error: mpi/pmi2: failed to send temp kvs to compute nodes"),
    ("unknown",
     "slurmstepd: error: mpi/pmi2: _tree_listen_readable: unable to open connection"),
    ("environment",
     "PMI2_Init failed to intialize.  Return code: 14"),
    ("unknown",
     "slurmstepd: error: task_p_post_launch: task/affinity: Unable to set CPU affinity"),
    ("unknown",
     "slurmstepd: error: task/cgroup: unable to add task[pid=812] to memory cg '(null)'"),
    ("host_oom",
     "slurmstepd: error: Exceeded step memory limit at some point."),
    ("host_oom",
     "slurmstepd: error: _fork_all_tasks: fork: Cannot allocate memory"),
    ("unknown",
     "slurmstepd: error: *** STEP 171.0 ON n0 FAILED (non-zero exit code or other failure mode) "
     "***"),
    ("config",
     "sbatch: error: Batch script contains DOS line breaks ()"),
    ("config",
     "sbatch: error: This does not look like a batch script.  The first"),
    ("config",
     "sbatch: error: Unable to open file job.slurm"),
    ("config",
     "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
     "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
     "limit, user's size and/or time limits)"),
    ("unknown",
     "srun: error: slurm_receive_msgs: Socket timed out on send/recv operation"),
    ("node_failure",
     "srun: error: timeout waiting for task launch, started 3 of 4 tasks\n"
     "srun: launch/slurm: launch_p_step_launch: StepId=171.0 aborted before step completely "
     "launched."),
    ("node_failure",
     "srun: error: Node failure on n2\n"
     "srun: error: Step launch failed"),
    ("host_oom",
     "srun: error: n1: task 3: Out Of Memory"),
    ("config",
     "srun: fatal: Could not determine number of nodes or tasks: nothing to do"),
    ("config",
     "srun: error: --gpus-per-task or --tres-per-task used without either --gpus or -n/--ntasks "
     "is not allowed."),
    ("none",
     "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1"),
    ("unknown",
     'srun: error: Unable to resolve "n7": Unknown host'),
    ("node_failure",
     "srun: error: fwd_tree_thread: can't find address for host n7, check slurm.conf"),
    ("environment",
     "srun: fatal: Can not execute vaspp"),
]


@each(("category", "log"), WORDS, called=lambda row: row[1][:100])
def test_the_category_of_slurms_own_words(category: str, log: str) -> None:
    assert judge_text(log).category == category


def test_sruns_own_limit_says_how_to_lift_it() -> None:
    verdict = judge_text("step 9/20 loss 2\nsrun: First task exited 60s ago\nsrun: Terminating StepId=224.11\n")
    assert verdict.rule == "slurm.wait_over" and "60 s after its first task had ended" in verdict.summary


def test_a_step_that_starts_after_all_is_not_the_cause() -> None:
    busy = "srun: Job 171 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
    for begun in ("srun: Step created for StepId=171.1\n", "step 1/20 loss 2.1\nstep 2/20 loss 2.0\n"):
        assert judge_text(busy + begun).category in ("none", "unknown")
    verdict = judge_text(busy + busy)
    assert verdict.rule == "slurm.step_busy" and verdict.summary == "no step could start: Requested nodes are busy"

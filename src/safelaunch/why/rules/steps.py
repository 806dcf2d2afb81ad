"""What srun and slurmstepd say of a step that does not start, is cut off, or has no place for its output."""

from __future__ import annotations

from safelaunch.why.findings import Rule

RULES = (
    Rule(
        "slurm.wait_over", "config", (b"First task exited",), rb"First task exited (?P<seconds>\d+)s ago", "cause",
        "job", 0.78, summary="srun ended the step {seconds} s after its first task had ended: its own limit (--wait)",
        explain="srun --wait, SLURM_WAIT, or WaitTime in slurm.conf: tasks that work longer than the first one are "
                "killed. So is a rank that exports a model, merges shards or evaluates alone.",
        do="Write `srun --wait=0`; in train.yaml `srun: {wait: 0}`.", source="srun(1), --wait", order=2,
        sample="srun: First task exited 60s ago", counter_sample="srun: the first task exited, 3 others work",
    ),
    Rule(
        "slurm.step_busy", "config", (b"creation temporarily disabled", b"creation still disabled"),
        rb"[Ss]tep (?:\d\S{0,20} )?creation (?:temporarily|still) disabled, retrying "
        rb"\((?P<why>(?!Required node)[^)]{0,200})", "cause", "job", 0.8, summary="no step could start: {why}",
        explain="What this srun asks for is held by another step of the job, mostly by the srun that it runs in, or "
                "the job has not got it at all.",
        do="Start no srun inside srun; give steps that run side by side their share (--exact, --mem, --gres), or "
           "--overlap; ask for no more than the job has.", source="srun, src/srun/libsrun/launch.c", order=9,
        sample="srun: Job 171 step creation still disabled, retrying (Requested nodes are busy)",
        counter_sample="srun: step creation is enabled again",
    ),
    Rule(
        "slurm.step_no_node", "node_failure", (b"retrying (Required node not available",),
        rb"retrying \(Required node not available", "cause", "nobody", 0.72,
        summary="no step could start: a node of the job is down, drained or reserved",
        explain="slurmctld gives no step to a node that it does not trust.", do="sinfo -R names the node and why.",
        source="slurmctld", order=9,
        sample="srun: Job 171 step creation still disabled, retrying (Required node not available (down, drained or "
               "reserved))",
        counter_sample="srun: retrying (Requested nodes are busy)",
    ),
    Rule(
        "slurm.step_created", "none", (b"Step created for", b"ob step created"), rb"(?:Step|[Jj]ob step) created\b",
        "context", "nobody", 0.1, summary="a step that had to wait has started",
        explain="srun says so where it had to wait.", source="srun",
        sample="srun: Step created for StepId=171.1", counter_sample="srun: no step was created",
    ),
    Rule(
        "slurm.output_file", "config",
        (b"Could not open stdout file", b"Could not open stderr file", b"Could not open stdin file",
         b"Unable to open file ", b'Unable to open "'),
        rb"(?:(?:slurmstepd\S{0,80}|srun|sbatch): (?:error|fatal): |^error: (?=Could not open std))"
        rb"(?:Could not open std(?:out|err|in) file|Unable to open(?: file)?) "
        rb"\"?(?P<path>[^:\s\"]{1,400})\"?(?:: (?P<why>No such file or directory|Permission denied|Is a directory"
        rb"|Not a directory)|:?\s*$)", "cause", "job", 0.76, summary="Slurm cannot open {path}: {why}",
        explain="A folder of --output, --error or --input does not exist where the task runs; Slurm makes none.",
        do="Make the folder before (mkdir -p), on a file system that all nodes have.",
        source="slurmstepd; srun; sbatch", order=1,
        sample="slurmstepd: error: Could not open stdout file /scratch/logs/out_171.txt: No such file or directory",
        counter_sample="slurmstepd: stdout file /scratch/logs/out_171.txt is open",
    ),
    Rule(
        "slurm.cpu_bind", "config",
        (b"satisfy cpu bind request", b"CPU binding outside of job step allocation", b"unable to set taskset",
         b"unable to set mask"),
        rb"Unable to satisfy cpu bind request|CPU binding outside of job step allocation|unable to set (?:taskset|mask)"
        rb"\b", "cause", "job", 0.78, summary="the tasks cannot be bound to CPUs as asked",
        explain="--cpu-bind, SLURM_CPU_BIND or a mask names CPUs that the step has not got; often a variable that was "
                "left from another job.",
        do="Leave --cpu-bind out, or ask for the CPUs that it names; unset SLURM_CPU_BIND.",
        source="srun; slurmstepd, task/affinity", order=4,
        sample="srun: error: Task launch for StepId=171.0 failed on node n0: Unable to satisfy cpu bind request",
        counter_sample="slurmstepd: task 0 is bound to CPUs 0-3",
    ),
)

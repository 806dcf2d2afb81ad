"""What Slurm and other batch systems say about a job."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_STEPD = "slurmstepd, src/slurmd/slurmstepd"
_SRUN = "srun, task exit report (src/srun/libsrun)"

RULES = (
    Rule(
        "slurm.time_limit", "time_limit",
        (b"wall time limit", b"walltime limit", b"DUE TO TIME LIMIT", b"job killed: walltime", b"TERM_RUNLIMIT",
         b"time limit exceeded", b"due to time limit", b"JOB TIMEOUT", b"exceeded its time"),
        b"exceeded (?:its |the )?wall ?time|(?i:due to time limit)|job killed: walltime|TERM_RUNLIMIT|CANCELLED "
        b".{0,300}? time limit exceeded|has exceeded its time", "cause", "nobody", 0.96,
        summary="the time limit was reached", explain="The batch system ended the job at its limit.",
        do="Continue from the last checkpoint; ask for more time, or save more often.", source=_STEPD + "; PBS; LSF",
        order=5,
        sample="slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***",
        counter_sample="slurmctld: JobId=811 has a time limit of 20 h, due to its partition",
    ),
    Rule(
        "slurm.preempted", "preempted",
        (b"DUE TO PREEMPTION", b"due to preemption", b"spot instance", b"TERM_PREEMPT", b"PREEMPTED"),
        rb"(?i:due to preemption)|TERM_PREEMPT|(?i:spot instance (?:interruption|termination))"
        rb"|job \d+ .{0,300}?PREEMPTED", "cause", "nobody", 0.96, summary="preempted for a more important job",
        explain="The batch system took the nodes back.", do="Continue from the last checkpoint.", source=_STEPD,
        order=5,
        sample="slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO PREEMPTION ***",
        counter_sample="slurmctld: job 811 is preemptable in partition scavenge, DUE TO its QOS",
    ),
    Rule(
        "slurm.lightning_requeue", "time_limit", (b"auto-requeue signal",), b"Handling auto-requeue signal", "symptom",
        "nobody", 0.6, action="requeue_only", summary="Lightning was told that the time is nearly up",
        explain="It saves a checkpoint and asks Slurm to put the job back.", source="PyTorch Lightning, SLURM plugin",
        sample="Handling auto-requeue signal: 10", counter_sample="the auto-requeue is on",
    ),
    Rule(
        "slurm.requeued", "preempted", (b"DUE TO JOB REQUEUE",), b"DUE TO JOB REQUEUE", "cause", "nobody", 0.7,
        summary="the job was put back into the queue", explain="By scontrol requeue, preemption or a node failure.",
        source=_STEPD, order=5,
        sample="slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO JOB REQUEUE ***",
        counter_sample="scontrol: job 811 may be requeued: JOB REQUEUE is allowed",
    ),
    Rule(
        "slurm.node_failure", "node_failure", (b"Node failure on ",), rb"Node failure on (?P<host>[\w.\[\],-]+)",
        "cause", "node", 0.96, summary="Slurm lost node {host}",
        explain="slurmctld got no answer from that node's slurmd, or found it down.",
        do="Keep the node out; look at its console and power.", source=_SRUN, host_group="host", order=5,
        sample="srun: error: Node failure on n17", counter_sample="slurmctld: no node failure on n17 since its reboot",
    ),
    Rule(
        "slurm.not_responding", "node_failure", (b"not responding",),
        rb"\b[Nn]odes? (?!is )(?P<host>[\w.\[\],-]+) (?:is |are )?not responding", "cause", "node", 0.8,
        summary="{host} does not answer Slurm", explain="The node's slurmd is gone, hangs, or cannot be reached.",
        do="Keep the node out.", source="slurmctld", host_group="host",
        sample="slurmctld: error: Nodes n[3-4] not responding, setting DOWN",
        counter_sample="nfs: server n3 not responding, still trying",
    ),
    Rule(
        "slurm.cancelled_node_failure", "node_failure", (b"DUE TO NODE FAILURE", b"JobState=NODE_FAIL", b"NODE_FAIL"),
        rb"DUE TO NODE FAILURE|\bNODE_FAIL\b", "cause", "nobody", 0.93, summary="Slurm ended the step: a node failed",
        explain="The named node is the first of the step, not the failed one.",
        do="`sacct -j JOB -o state,nodelist` and `scontrol show node` name the failed one.", source=_STEPD, order=5,
        sample="slurmstepd: error: *** STEP 811.0 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE, SEE "
               "SLURMCTLD LOG FOR DETAILS ***",
        counter_sample="after a node failure the job is put back",
    ),
    Rule(
        "slurm.cancelled_signal", "cancelled", (b"DUE to SIGNAL",),
        rb"\*\*\* JOB \d+(?: ON \S+)? CANCELLED AT .{0,300}? DUE to SIGNAL (?P<signal>[\w ]{1,30}?) \*\*\*",
        "cause", "nobody", 0.8, summary="ended from outside by signal {signal}",
        explain="scancel, or the batch system at the job's end.",
        source=_STEPD, order=5,
        sample="[2026-11-22T18:25:39.996] error: *** JOB 1 ON n0 CANCELLED AT 2026-11-22T18:25:39 DUE to SIGNAL "
               "Terminated ***",
        counter_sample="slurmstepd: error: *** STEP 811.1 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE to SIGNAL "
                       "Terminated ***",
    ),
    Rule(
        "slurm.job_cancelled", "cancelled", (b" CANCELLED AT ",),
        rb"\*\*\* JOB (?P<job>\d+)(?: ON \S+)? CANCELLED AT \S+(?: \*\*\*)?\s*$", "cause", "nobody", 0.72,
        summary="job {job} was cancelled", explain="By scancel: a person, or a script of the site.", source=_STEPD,
        order=3,
        sample="slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 ***",
        counter_sample="slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***",
    ),
    Rule(
        "slurm.step_cancelled", "cancelled", (b" CANCELLED AT ",),
        rb"\*\*\* STEP (?P<step>\S+)(?: ON \S+)? CANCELLED AT \S+(?: DUE to SIGNAL [\w ]{1,30}?)?(?: \*\*\*)?\s*$",
        "symptom", "nobody", 0.6,
        summary="step {step} was cancelled",
        explain="By scancel, by Ctrl-C at srun, or by srun itself after a task failed (-K).", source=_STEPD, order=3,
        sample="slurmstepd: error: *** STEP 811.0 ON n3 CANCELLED AT 2025-01-02T03:04:05 ***",
        counter_sample="slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 ***",
    ),
    Rule(
        "slurm.interrupt", "cancelled", (b"srun: interrupt", b"sending Ctrl-C to"),
        rb"srun: interrupt \(one more|srun: sending Ctrl-C to", "cause",
        "nobody", 0.72, summary="interrupted at the terminal of srun", explain="srun got Ctrl-C or SIGTERM.",
        source="srun(1)", order=3,
        sample="srun: interrupt (one more within 1 sec to abort)",
        counter_sample="srun: the interrupt is disabled (one more has no effect)",
    ),
    Rule(
        "slurm.forced", "cancelled", (b"forcing job termination",), rb"srun: (?:error: )?forcing job termination",
        "symptom", "nobody", 0.4, summary="srun was told to end the step",
        explain="By Ctrl-C, SIGTERM or scancel; slurmstepd's line tells of which.", source="srun(1)", order=3,
        sample="srun: forcing job termination",
        counter_sample="srun: forcing of job termination is off (KillOnBadExit=0)",
    ),
    Rule(
        "slurm.task_exit", "user_code", (b"Exited with exit code",),
        rb"(?:^|[\s:])(?:(?P<host>[\w.-]{1,80}): )?tasks? (?P<task>\d{1,7})[\d,\-]{0,300}: Exited with exit code "
        rb"(?P<code>\d+)", "teardown", "rank", 0.25, summary="task {task} on {host} ended with exit code {code}",
        explain="Its own lines say why.", source=_SRUN, host_group="host", rank_group="task",
        sample="srun: error: n3: task 5: Exited with exit code 1", counter_sample="srun: n3: task 5 exited with code 0",
    ),
    Rule(
        "slurm.task_signal", "native_crash",
        (b": Segmentation fault", b": Bus error", b": Floating point exception", b": Illegal instruction"),
        rb"(?:^|[\s:])(?:(?P<host>[\w.-]{1,80}): )?tasks? (?P<task>\d{1,7})[\d,\-]{0,300}: (?P<what>Segmentation "
        rb"fault|Bus error|Floating point exception|Illegal instruction)", "cause", "rank", 0.75,
        summary="task {task} on {host}: {what}", explain="The process died of a signal of its own making.",
        do="Enable core dumps or faulthandler (python -X faulthandler).", source=_SRUN, host_group="host",
        rank_group="task", order=1,
        sample="srun: error: n3: task 5: Segmentation fault (core dumped)",
        counter_sample="srun: n3: task 5: no segmentation fault, no bus error",
    ),
    Rule(
        "slurm.task_aborted", "native_crash", (b": Aborted",),
        rb"(?:^|[\s:])(?:(?P<host>[\w.-]{1,80}): )?tasks? (?P<task>\d{1,7})[\d,\-]{0,300}: Aborted", "symptom", "rank",
        0.35, summary="task {task} on {host} aborted",
        explain="An uncaught C++ exception or a failed check; its words stand above.", source=_SRUN, host_group="host",
        rank_group="task",
        sample="srun: error: n3: task 5: Aborted (core dumped)", counter_sample="task 5 was Aborted",
    ),
    Rule(
        "slurm.task_terminated", "cancelled", (b": Terminated",),
        rb"(?:^|[\s:])(?:(?P<host>[\w.-]{1,80}): )?tasks? (?P<task>\d{1,7})[\d,\-]{0,300}: Terminated", "teardown",
        "nobody", 0.2, summary="tasks were ended by SIGTERM", explain="srun ends the step.", source=_SRUN,
        sample="srun: error: n3: tasks 0-7: Terminated", counter_sample="srun: n3: tasks 0-7: Completed",
    ),
    Rule(
        "slurm.step_teardown", "user_code",
        (b"First task exited", b"Terminating Step", b"Terminating StepId", b"Terminating JobId", b"Job step aborted",
         b"Force Terminated", b"step tasks have been terminated", b"DUE TO TASK FAILURE",
         b"FAILED (non-zero exit code or other failure mode)"),
        rb"First task exited|srun: (?:launch/slurm: \S+ )?(?:Job step aborted|Terminating (?:Step|Job))"
        rb"|Job step aborted|Force Terminated|Terminating (?:Step|Job)|DUE TO TASK FAILURE"
        rb"|FAILED \(non-zero exit code or other", "teardown", "nobody", 0.1,
        summary="srun ends the step", explain="After a task's end.", source=_SRUN,
        sample="srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        counter_sample="srun: Job step created: waiting for the first task",
    ),
    Rule(
        "slurm.memory_error", "node_failure", (b"UNCORRECTABLE MEMORY ERROR",),
        rb"\*\*\* (?:JOB|STEP) \S+ ON (?P<host>\S+) UNCORRECTABLE MEMORY ERROR", "cause", "node", 0.92,
        summary="{host} has an uncorrectable memory error", explain="A process was ended by SIGBUS for a bad page.",
        do="Keep the node out and tell the admins.", source=_STEPD, host_group="host", order=5,
        sample="slurmstepd: error: *** STEP 811.0 ON n3 UNCORRECTABLE MEMORY ERROR AT 2025-01-02T03:04:05 ***",
        counter_sample="slurmd: no uncorrectable memory error was seen ON n3 at its start",
    ),
    Rule(
        "slurm.launch_failed", "node_failure",
        (b"timeout waiting for task launch", b"Task launch for", b"launch failed", b"Prolog failed", b"prolog failed",
         b"Kill task failed", b"prolog_error", b"are still not ready", b"wrong with the boot of the nodes"),
        rb"timeout waiting for task launch|Task launch for \S+ failed on node (?P<host>[\w.-]+): "
        rb"(?P<why>(?!Unable to satisfy cpu bind).*)"
        rb"|(?i:prolog failed)|launch failed(?: requeued|: (?!Unable to satisfy cpu))"
        rb"|[Kk]ill task failed|Nodes? \S+ (?:is|are) still not ready|wrong with the boot of the nodes", "cause",
        "node", 0.85, summary="a task could not be launched on {host}: {why}",
        explain="The node's slurmd did not answer, refused, or its prolog failed.", do="Keep the node out.",
        source="srun; slurmctld", host_group="host", order=2,
        sample="srun: error: Task launch for StepId=811.0 failed on node n3: Communication connection failure",
        counter_sample="task launch took 3 s on node n3",
    ),
    Rule(
        "slurm.controller", "node_failure",
        (b"Unable to contact slurm controller", b"Unable to connect to slurm", b"Slurm backup controller"),
        b"Unable to contact slurm controller|Unable to connect to slurm", "context", "nobody", 0.4, action="restart",
        summary="slurmctld does not answer", explain="The controller is restarting or overloaded; running steps go on.",
        source="Slurm client commands",
        sample="slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        counter_sample="scontrol: contacted slurm controller ctl1",
    ),
    Rule(
        "slurm.refused", "config",
        (b"Batch job submission failed", b"Unable to allocate resources", b"Unable to create step",
         b"More processors requested than permitted", b"Requested node configuration is not available",
         b"Invalid generic resource"),
        rb"(?:Batch job submission failed|Unable to allocate resources"
        rb"|Unable to create step for job \d+): (?!Unable to contact|Socket timed out|Zero Bytes|Unexpected message"
        rb"|Job/step already|Transport endpoint|Protocol auth)(?P<why>.*)|More processors requested than permitted"
        rb"|Requested node configuration is not available", "cause", "job", 0.8, summary="Slurm refused: {why}",
        explain="The request does not fit the partition, the account or the allocation.",
        do="Correct the sbatch or srun options.", source="sbatch, srun", order=1,
        sample="sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        counter_sample="sbatch: Submitted batch job 811 to account physics",
    ),
    Rule(
        "slurm.stuck", "node_failure", (b"NOT ENDING WITH SIGNALS",), b"NOT ENDING WITH SIGNALS", "cause", "node", 0.82,
        summary="a process on the node could not be killed",
        explain="It is stuck in the kernel (a file system or a card that does not answer); Slurm drains the node.",
        do="Keep the node out.", source=_STEPD, order=5,
        sample="slurmstepd: error: *** JOB 811 STEPD TERMINATED ON n3 AT 2025-01-02T03:04:05 DUE TO JOB NOT ENDING "
               "WITH SIGNALS ***",
        counter_sample="slurmstepd: *** JOB 811 ENDING WITH SIGNALS on n3 ***",
    ),
    Rule(
        "slurm.options", "config",
        (b"srun: fatal: ", b"srun: error: ", b"sbatch: error: ", b"salloc: error: ", b"sbatch: fatal: "),
        b"(?:srun|sbatch|salloc): (?:fatal|error): (?P<why>.{0,300}?(?:mutually exclusive|can ?not be "
        b"satisfied|[Ii]nvalid|not allowed|[Uu]nrecognized|ambiguous|set by two different|must be greater|No command "
        b"given|nothing to do|contains DOS line breaks|look like a batch script|[Bb]atch script is empty).*)",
        "cause", "job", 0.75,
        summary="Slurm refuses an option: {why}", explain="The options do not fit each other or the cluster.",
        do="Correct the sbatch or srun options.", source="sbatch, srun",
        sample="srun: error: CPU count per node can not be satisfied", counter_sample="srun: error: something else",
    ),
    Rule(
        "slurm.spank", "node_failure", (b"Failed to invoke spank", b"spank_", b"spank: "),
        b"Failed to invoke spank plugin|spank: required plugin", "cause", "node", 0.62,
        summary="a Slurm plugin of the site failed on a node", explain="The task was not started there.",
        do="Keep the node out and tell the admins.", source=_STEPD,
        sample="slurmstepd: error: Failed to invoke spank plugin stack", counter_sample="spank plugins: 3",
    ),
    Rule(
        "slurm.execve", "environment", (b"execve():", b"execve: ", b"srun: fatal: Can not execute"),
        rb"execve\(\): (?P<path>.{0,400}?): (?P<why>No such file or directory|Permission denied|Exec format error"
        rb"|Text file busy)|srun: fatal: Can not execute (?P<command>\S{1,400})", "cause", "job", 0.8,
        summary="{path}{command} cannot be executed: {why}", explain="The command does not exist on the node.",
        do="Check the path, the module and the virtual environment on the compute node.", source=_STEPD, order=2,
        sample="slurmstepd: error: execve(): pythn: No such file or directory",
        counter_sample="slurmstepd: execve(): python started",
    ),
    Rule(
        "slurm.chdir", "storage", (b"couldn't chdir to",), b"couldn't chdir to [`'](?P<path>[^']*)'", "context", "node",
        0.4, summary="the working folder {path} is not there on a node",
        explain="The file system is not mounted on that node, or the folder is gone.", source=_STEPD,
        sample="slurmstepd: error: couldn't chdir to `/scratch/run': No such file or directory: going to /tmp instead",
        counter_sample="slurmstepd: chdir to `/scratch/run': done",
    ),
    Rule(
        "slurm.cgroup_noise", "none",
        (b"Failed to send MESSAGE_TASK_EXIT", b"Failed to remove cgroup", b"_get_joules_task",
         b"unable to remove cgroup", b"cpu-bind=MASK", b"error: spank", b"task/cgroup:"),
        b"Failed to send MESSAGE_TASK_EXIT|remove cgroup|_get_joules_task|cpu-bind=MASK", "noise", "nobody", 1.0,
        explain="Slurm's housekeeping; it has no influence on the job.", source="slurmstepd", order=9,
        sample="slurmstepd: error: _get_joules_task: can't get info from slurmd",
        counter_sample="slurmstepd: energy: joules of the task: 812",
    ),
    Rule(
        "batch.owner", "cancelled",
        (b"TERM_OWNER", b"job killed by owner", b"job deleted at request", b"exception type=cancel"),
        b"TERM_OWNER|job killed by owner|job deleted at request|exception type=cancel", "cause", "nobody", 0.9,
        summary="cancelled by its owner", explain="By bkill, qdel or flux cancel.", source="LSF; PBS; Flux",
        sample="TERM_OWNER: job killed by owner.", counter_sample="the owner of the job is alice",
    ),
    Rule(
        "batch.revoked", "cancelled", (b"has been revoked",), rb"[Jj]ob allocation (?P<job>\d+) has been revoked",
        "symptom", "nobody", 0.5, action="requeue_only", summary="allocation {job} was taken back",
        explain="By its time limit, scancel, preemption or a node failure; salloc does not say which.",
        do="`sacct -j JOB -o state`.", source="salloc",
        sample="salloc: Job allocation 811 has been revoked.", counter_sample="job allocation 811 was granted",
    ),
    Rule(
        "batch.terminated", "cancelled", (b"Terminated",), rb"(?:^|line \d+: +\d+ )Terminated(?:$| {2,})", "symptom",
        "nobody", 0.4, action="requeue_only", summary="ended by SIGTERM",
        explain="From outside: scancel, kill, a time limit, or the launcher.", source="bash, job control",
        sample="/var/spool/slurmd/job811/slurm_script: line 12:  4242 Terminated              python train.py",
        counter_sample="Terminated workers: 0",
    ),
    Rule(
        "batch.hangup", "cancelled", (b"Hangup",), rb"(?:^|line \d+: +\d+ )Hangup(?:$| {2,})", "cause", "nobody", 0.6,
        action="requeue_only", summary="the terminal went away (SIGHUP)", explain="The session that started it ended.",
        source="bash, job control",
        sample="run.sh: line 3:  4242 Hangup                  python train.py", counter_sample="Hangup is ignored here",
    ),
    Rule(
        "slurm.node_words", "node_failure",
        (b"Node configuration differs from hardware", b"Prolog launch failure", b"is not ready", b"rolog failed",
         b"slurmd is not ready", b"Unable to create step"),
        rb"Node configuration differs from hardware|Prolog launch failure|job prolog failed|Unable to create "
        rb"step for job \d+: .{0,60}?(?:not ready|Zero Bytes|not respond)",
        "cause", "node", 0.76,
        summary="a node's set-up is broken",
        explain="The node's daemon, its prolog or its hardware list is wrong.",
        do="Keep the node out; tell the admins.",
        source="Slurm, slurmctld and slurmd", order=6,
        sample="slurmctld: error: Prolog launch failure, JobId=81", counter_sample="the prolog is ready",
    ),
    Rule(
        "slurm.step_wait", "node_failure",
        (b"Timed out waiting for job step to complete", b"Failed to send MESSAGE_TASK_EXIT"),
        rb"Timed out waiting for job step to complete|Failed to send MESSAGE_TASK_EXIT",
        "symptom", "node", 0.5,
        summary="a node did not report its tasks' end",
        explain="Its daemon or its network does not answer.",
        source="Slurm, srun", order=1,
        sample="srun: error: Timed out waiting for job step to complete", counter_sample="job step is complete",
    ),
    Rule(
        "slurm.preempt_words", "preempted",
        (b"preempted", b"evicted", b"pot interruption", b"pot instance", b"reemption notice"),
        rb"preempted JobId=\d+|evicted by kubelet|nstances\.preempted|(?i:spot (?:instance )?(?:interruption|terminat"
        rb"ion)|(?<!retrieve )preemption notice|(?:job|node|vm|instance|worker|pod|host|machine) (?:\S{1,60} )?(?:is"
        rb"|was|has been) (?:being )?(?:preempted|evicted))", "cause", "job", 0.8, summary="the job had to make room",
        explain="A more important job, or the cloud, took the nodes.", do="Continue from the last checkpoint.",
        source="Slurm; Kubernetes; AWS, Google Cloud and Azure", order=4,
        sample="slurmctld: preempted JobId=81 has been requeued to reclaim resources for JobId=82",
        counter_sample="the job may be preempted",
    ),
    Rule(
        "slurm.limit_words", "time_limit",
        (b"Reason=TimeLimit", b"JobState=TIMEOUT", b"DeadlineExceeded", b"exceeded hard wallclock time",
         b"exceeded soft wallclock time", b"time limit is near"),
        rb"Reason=TimeLimit|JobState=TIMEOUT|Job was active longer than specified deadline|exceeded (?:hard"
        rb"|soft) wallclock time|time limit is near",
        "cause", "job", 0.76,
        summary="the job's time was used up",
        explain="The batch system's limit, or the program's own in front of it.",
        do="Submit again to go on from the last checkpoint.",
        source="Slurm; Kubernetes; Grid Engine; Megatron-LM", order=2,
        sample="qmaster: job 81 exceeded hard wallclock time h_rt", counter_sample="the wallclock time of this job",
    ),
    Rule(
        "slurm.scancel_words", "cancelled",
        (b"scancel: ",),
        rb"scancel: (?:Signal \d+ to|Terminating) (?:batch )?job",
        "cause", "job", 0.7,
        summary="the job was cancelled by hand",
        explain="scancel's own words.",
        source="Slurm, scancel", order=2,
        sample="scancel: Signal 15 to batch job 81", counter_sample="use scancel: it ends a job",
    ),
)

"""The categories of the program itself, and of ends that are no failure. A row holds all that follows from one
(why.categories).
"""

from __future__ import annotations

from safelaunch.why.causes.category import Blame, Category, Page

ROWS: dict[str, Category] = {
    "cuda_oom": Category(
        "fix_config", "once", None, "memory that is too small stays too small; fragmentation does not",
        "use a smaller micro batch, activation checkpointing or more sharding",
        page=Page(
            "a GPU's memory ran out",
            "The model, its activations or its buffers need more memory than the GPU has.",
            ("the message: reserved much larger than allocated means fragmentation "
             "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)",
             "nvidia-smi on the node: does another process hold memory, one of a job that has ended?",
             "does it come at the first step (sizes), or late (longest sample, evaluation, a leak)?"),
            "Smaller micro batch, activation checkpointing, sharding. A restart helps only when another process held "
            "the memory."),
    ),
    "numerical": Category(
        "fix_config", "once", None, "a deterministic NaN comes back; one from a bad GPU does not",
        "go back to an older checkpoint, skip the samples or lower the learning rate",
        page=Page(
            "the numbers blew up",
            "NaN or infinity in loss, gradients or logits. No hardware error was seen; silent "
            "corruption is possible, but rare.",
            ("when did grad norm or loss scale begin to grow? The steps before the first NaN are what matters",
             "does it come again from the checkpoint before, at the same samples? Then data or learning rate",
             "only on some nodes: run the node checks, a GPU may compute wrongly"),
            "Go back to a checkpoint before it, skip the samples or lower the learning rate."),
    ),
    "native_crash": Category(
        "restart", "exclude", 4, "a bug or a bad GPU: weak evidence against the node that failed first",
        "look at the core file, and build matching versions", blame=Blame(),
        recurs_on_a_node=True,
        page=Page(
            "a native library crashed",
            "Segmentation fault, bus error, abort or illegal memory access, without any word of the driver about "
            "broken hardware.",
            ("a bus error with a full /dev/shm or disk is a lack of space: df -h /dev/shm",
             "core file: coredumpctl or gdb python CORE, then bt and thread apply all bt",
             "illegal memory access: compute-sanitizer, CUDA_LAUNCH_BLOCKING=1; if it follows one node, suspect its "
             "GPU",
             "a new wheel, driver or kernel extension since the last good run?"),
            "Restart once; if it comes back, build matching versions or report it with the stack."),
    ),
    "hang": Category(
        "restart", "exclude", 6, "weak evidence against the nodes of the odd ranks",
        "look at the ranks that the others waited for (safelaunch why)", blame=Blame("hang"),
        recurs_on_a_node=True,
        page=Page(
            "it stood still",
            "No progress, and no cause in the log. A collective that timed out says that some rank did not come, not "
            "which one or why; every rank that waited prints the same line.",
            ("the stacks that a run keeps, attempts/N/stacks: which ranks stand elsewhere than the others? Of one that "
             "cannot be read the kernel's word stands beside; D means storage or driver",
             "did all ranks print the same last step? Which did not? Do data loader workers stand in a lock?"),
            "Restart; without the node where the odd ranks are when it comes back there.",
            ("while it hangs: safelaunch stacks JOB, of any job of yours: which ranks stand elsewhere than the others?",
             "while it hangs: nvidia-smi: waiting ranks show 100 %, the one that is waited for shows 0 %")),
    ),
    "preempted": Category(
        "requeue_only", "continue", None, "somebody else needed the nodes", "",
        ends_jobs=True,
        page=Page(
            "a more important job took the nodes",
            "Slurm preempted the job. Nothing is wrong with it.",
            ("sacct -j JOB --format=JobID,State,Reason", "scontrol show job JOB: Requeue, QOS"),
            "Queue it again; it goes on from its newest checkpoint."),
    ),
    "time_limit": Category(
        "requeue_only", "continue", None, "the job was too short, the training did nothing wrong", "",
        ends_jobs=True,
        page=Page(
            "the time limit ended the job",
            "Slurm ended it at its limit. Nothing is wrong.",
            ("sacct -j JOB --format=JobID,State,Elapsed,Timelimit",),
            "Queue the next job; safelaunch asks for a checkpoint before the limit and goes on by itself."),
    ),
    "cancelled": Category(
        "none", "stop", None, "a person's request is final", "",
        ends_jobs=True,
        page=Page(
            "somebody ended it",
            "scancel, Ctrl-C, or the end of the terminal that it ran in (SIGHUP).",
            ("sacct -j JOB --format=JobID,State: 'CANCELLED by UID' names who; getent passwd UID",
             "SIGHUP: it was started from a login shell; use sbatch, tmux or nohup"),
            "Nothing, unless it was an accident: then submit it again."),
    ),
    "user_code": Category(
        "fix_user_code", "once", None, "the same code fails the same way",
        "fix the program",
        is_programs_own=True,
        page=Page(
            "the program raised an error",
            "An exception of the training's own code. The deepest frame that is not in a library is where to look.",
            ("the traceback, whole by --all; the first rank that raised is the one to read",
             "does it come at the same step again? Then data or code; at another one: a race, or a machine",
             "without GPUs: CUDA_VISIBLE_DEVICES= python …; with asynchronous errors: CUDA_LAUNCH_BLOCKING=1"),
            "Fix it. A restart alone repeats it."),
    ),
    "unknown": Category(
        "restart", "exclude", None, "the next failure may say more; weak evidence against the node that failed first",
        "look at the log of the rank that ended first (safelaunch logs --rank R)", blame=Blame(),
        recurs_on_a_node=True,
        page=Page(
            "the log does not say",
            "There is an end without a cause, or several causes that are as likely. An honest 'unknown' is better than "
            "a wrong name.",
            ("the candidates: safelaunch why --all",
             "sacct -j JOB --format=JobID,State,ExitCode,DerivedExitCode,NodeList: signals, limits, nodes",
             "the log of the rank that ended first, alone: safelaunch logs --rank R",
             "dmesg on the node of that rank, around the time of the last step",
             "is the output complete? A pipe to tee hides exit codes (set -o pipefail), a killed process its last "
             "words"),
            "Restart once within a small budget; the second failure says more."),
    ),
    "none": Category(
        "none", "", None, "", "",
        page=Page(
            "nothing is wrong",
            "The log shows a program that works or has ended well. Words such as 'error' in it mean nothing by "
            "themselves.",
            (), "Nothing."),
    ),
}

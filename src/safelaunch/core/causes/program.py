"""The categories of the program itself, and of ends that are no failure. A row holds all that follows from one
(core.categories).
"""

from __future__ import annotations

from safelaunch.core.causes.category import Blame, Category, Page

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
        words=(
            (6, r"(?:cuda|gpu|device|npu|hpu|hip|xpu|vram|hbm)\w{0,12}\b.{0,40}(?:out of memory|alloc\w*|memory)"
                r"|kv cache|resource_?exhausted|exceed\w* .{0,30}memory|out of resources?"),
            (2, r"memory|alloc\w*|out of memory")
        ),
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
        words=(
            (4, r"nans?|infs?|infinit[ey]|diverg\w+|overflow\w*|underflow\w*|loss[_ ]scale|non-?finite|not finite"
                r"|exploding|exploded|isfinite|isnan|loss spike"),
            (1, r"gradients?|loss|norm|grad[_ ]norm")
        ),
    ),
    "native_crash": Category(
        "restart", "exclude", 4, "a bug or a bad GPU: the first to fail is watched, lightly",
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
        words=(
            (4, r"seg(?:mentation)?[ -]?fault\w*|sig(?:segv|bus|ill|abrt)|core dumped|stack smashing|double free"
                r"|free\(\)|malloc\S*|illegal instruction|misaligned|(?:illegal|invalid) (?:memory )?(?:access|address)"
                r"|bus error|assertion `|heap|null pointer|access violation|terminate called|pure virtual"),
            (2, r"corruption|abort(?:ed)?|crash(?:ed)?|backtrace|signal \d+|internal error")
        ),
    ),
    "hang": Category(
        "restart", "exclude", 6, "the odd ranks' nodes are under suspicion, lightly",
        "look at the ranks that the others waited for (safelaunch why)", blame=Blame("hang"),
        recurs_on_a_node=True,
        page=Page(
            "it stood still",
            "No progress, and no cause in the log. A collective that timed out says that some rank did not come, not "
            "which one or why; every rank that waited prints the same line.",
            ("while it still hangs: safelaunch stacks JOBID, also of a job that safelaunch did not start. Look at the "
             "ranks that stand elsewhere than the others",
             "a rank whose stack cannot be read: what the kernel says of it stands beside; state D means storage or "
             "driver",
             "nvidia-smi: waiting ranks show 100 %, the one that is waited for shows 0 %",
             "did all ranks print the same last step? Which did not? Do data loader workers stand in a lock?"),
            "Restart; without the node where the odd ranks are when it comes back there."),
        words=(
            (4, r"dead ?lock\w*|hang(?:s|ing)?|stuck|no progress|stall\w*|watchdog|straggler|(?:not|no) respon\w+"),
            (2, r"timed? ?-?out|collectives?|all_?reduce|all_?gather|broadcast|wait(?:ed|ing)?")
        ),
    ),
    "preempted": Category(
        "requeue_only", "continue", None, "somebody else needed the nodes", "",
        ends_jobs=True,
        page=Page(
            "a more important job took the nodes",
            "Slurm preempted the job. Nothing is wrong with it.",
            ("sacct -j JOB --format=JobID,State,Reason", "scontrol show job JOB: Requeue, QOS"),
            "Queue it again; it goes on from its newest checkpoint."),
        words=((4, r"preempt\w*|spot|evict\w*|reclaim\w*|maintenance|interruption notice"),),
    ),
    "time_limit": Category(
        "requeue_only", "continue", None, "the job was too short, the training did nothing wrong", "",
        ends_jobs=True,
        page=Page(
            "the time limit ended the job",
            "Slurm ended it at its limit. Nothing is wrong.",
            ("sacct -j JOB --format=JobID,State,Elapsed,Timelimit",),
            "Queue the next job; safelaunch asks for a checkpoint before the limit and goes on by itself."),
        words=((4, r"time ?limit|wall[- _]?(?:time|clock)|time is up|out of time"), (1, r"deadline|exceeded")),
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
        words=((4, r"cancell?ed|ctrl-?c|keyboard|sighup|hang ?up|by (?:the )?user"), (2, r"interrupt\w*"
                r"|terminated")),
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
        words=(
            (4, r"shape\w*|dtypes?|mat1|broadcastable|autograd|backward|nonetype|unexpected keyword|out of (?:range"
                r"|bounds)|size mismatch|dimensions?|operands?|serializable|unsupported operand|not defined"
                r"|not implemented|tracer\w*|graph break|einops|subscriptable|callable|iterable|unpack\w*"),
            (2, r"expected .{1,60} (?:but )?got|tensors?|sizes?|attribute|index|types?|axis|elements?|float\d*|int\d+"
                r"|inputs?|outputs?|length")
        ),
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

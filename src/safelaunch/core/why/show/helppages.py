"""A page for each category of verdict: what it means, what to check by hand, what to do. Shown by `why --explain`.

The recipes come from the incidents that the project grew from (BLOOM-176B's chronicles, a hang on a frozen filesystem,
a provider's and a team's trouble-shooting guides) and from the manuals of the tools that they name.
"""

from __future__ import annotations

from typing import NamedTuple


class Page(NamedTuple):
    """One category for people. `check` are things to type or to look at, the cheapest first."""

    title: str
    means: str
    check: tuple[str, ...]
    then: str


PAGES: dict[str, Page] = {
    "gpu_hardware": Page(
        "a GPU or its link is failing",
        "The driver or CUDA reported what software cannot cause: an Xid of the hardware classes, an uncorrectable "
        "memory error, a GPU that is no longer on the bus. The other ranks' errors and time-outs are echoes.",
        ("on the node: dmesg -T | grep -E 'NVRM|Xid'; an Xid of class hardware names the GPU by its PCI address",
         "on the node: nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT; pending remaps need a reset of the GPU",
         "nvidia-smi topo -m and nvidia-smi nvlink -e: replay and CRC errors of a link that grow",
         "run the training without the node: the same error elsewhere means software, not this GPU"),
        "Restart without the node (submit with slurm.exclude) and send its administrators the ticket: "
        "safelaunch why --ticket."),
    "network": Page(
        "the network between nodes failed",
        "InfiniBand, RoCE, EFA or TCP reported an error of its own, before any rank had gone. A connection that is "
        "closed by a peer is no such error: the peer has died, and its log says of what.",
        ("ibstat, ibv_devinfo on the nodes that are named: is each port Active, LinkUp and of full rate?",
         "ulimit -l inside of the job: registration of memory needs it unlimited",
         "NCCL_DEBUG=INFO says which interface is used; is it the one between the nodes (NCCL_SOCKET_IFNAME)?",
         "a two-node all_reduce between the named node and another one, then between two others"),
        "Restart; without the node when a second failure names it as well."),
    "node_failure": Page(
        "a node is gone or unfit",
        "Slurm lost a node, or it does not start, answer or hold what the job needs. Slurm's last message often names "
        "the first node of the step: look at which node is named as failed.",
        ("sinfo -R -n NODE and scontrol show node NODE: state, reason, since when",
         "sacct -j JOB --format=JobID,State,ExitCode,NodeList,Reason",
         "ping and ssh to the node, from another node of the cluster"),
        "Restart without the node; safelaunch does so by itself."),
    "host_oom": Page(
        "the host's memory ran out",
        "The kernel's or the job's memory limit (cgroup) ended a process. The training then misses a rank, and the "
        "others wait for it. A bare 'Killed' or signal 9 that nobody sent is read as this too, with less confidence.",
        ("sacct -j JOB --format=JobID,State,MaxRSS,ReqMem; OUT_OF_MEMORY or exit code 0:125 confirms it",
         "on the node: dmesg -T | grep -iE 'out of memory|oom-kill' names the process and its size",
         "memory grows with data loader workers, pinned buffers, checkpoints gathered on one rank, caches in /dev/shm"),
        "Ask for more memory (slurm.mem), use fewer workers, load and save in shards. The node is not to blame."),
    "cuda_oom": Page(
        "a GPU's memory ran out",
        "The model, its activations or its buffers need more memory than the GPU has.",
        ("the message: reserved much larger than allocated means fragmentation "
         "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)",
         "nvidia-smi on the node: does another process hold memory, one of a job that has ended?",
         "does it come at the first step (sizes), or late (longest sample, evaluation, a leak)?"),
        "Smaller micro batch, activation checkpointing, sharding. A restart helps only when another process held the "
        "memory."),
    "time_limit": Page(
        "the time limit ended the job",
        "Slurm ended it at its limit. Nothing is wrong.",
        ("sacct -j JOB --format=JobID,State,Elapsed,Timelimit",),
        "Queue the next job; safelaunch asks for a checkpoint before the limit and goes on by itself."),
    "preempted": Page(
        "a more important job took the nodes",
        "Slurm preempted the job. Nothing is wrong with it.",
        ("sacct -j JOB --format=JobID,State,Reason", "scontrol show job JOB: Requeue, QOS"),
        "Queue it again; it goes on from its newest checkpoint."),
    "cancelled": Page(
        "somebody ended it",
        "scancel, Ctrl-C, or the end of the terminal that it ran in (SIGHUP).",
        ("sacct -j JOB --format=JobID,State: 'CANCELLED by UID' names who; getent passwd UID",
         "SIGHUP: it was started from a login shell; use sbatch, tmux or nohup"),
        "Nothing, unless it was an accident: then submit it again."),
    "storage": Page(
        "the storage failed or is full",
        "No space, no quota, an I/O error, a read-only or stale file system, or one that does not answer. A process "
        "that waits for such a file system sleeps in state D and cannot be killed; its GPU looks healthy and idle.",
        ("df -h PATH and df -i PATH; quota -s, lfs quota or mmlsquota: space and number of files",
         "on the node: timeout 5 ls PATH; if it hangs, the mount is frozen",
         "ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /D/': who waits, and in which function of the kernel",
         "dmesg -T for nfs, lustre, gpfs or I/O errors: is it one node or all of them?"),
        "Free space or wait until it answers, then restart. No node is to blame when several report it."),
    "checkpoint": Page(
        "a checkpoint is missing, damaged or does not fit",
        "The file that was to be resumed from is not there, was cut off, or was made by a model of other sizes.",
        ("ls -l of the checkpoint: are all shards there, and of equal size? Was its writer killed?",
         "does the model that is built have the sizes of the one that was saved (layers, vocabulary, parallelism)?"),
        "Go back to the checkpoint before; safelaunch resumes only from complete ones."),
    "rendezvous": Page(
        "the ranks did not find each other",
        "The store at the start could not be opened or reached: mostly a port that an earlier or another job still "
        "holds, else an address that does not lead to the first node.",
        ("on the first node: ss -ltnp | grep PORT names who holds it",
         "getent hosts MASTER_ADDR on another node; may the nodes talk to each other on that port?",
         "did every node start? One that did not leaves the others waiting"),
        "Use a port of the job's own (safelaunch gives each attempt a fresh one), and restart."),
    "user_code": Page(
        "the program raised an error",
        "An exception of the training's own code. The deepest frame that is not in a library is where to look.",
        ("the traceback, whole by --all; the first rank that raised is the one to read",
         "does it come at the same step again? Then data or code; at another one: a race, or a machine",
         "without GPUs: CUDA_VISIBLE_DEVICES= python …; with asynchronous errors: CUDA_LAUNCH_BLOCKING=1"),
        "Fix it. A restart alone repeats it."),
    "config": Page(
        "the configuration does not fit",
        "An argument, size or path that does not suit the job, the model or the data.",
        ("the message names the value; safelaunch config --origin shows where each value comes from",
         "number of ranks against parallel degrees and batch sizes: do they divide each other?"),
        "Change the value. A restart alone repeats it."),
    "environment": Page(
        "the software environment is incomplete",
        "A module, library or symbol is missing, or was built for another machine, compiler or card.",
        ("on the node, after the job's setup: which python; python -c 'import MODULE'",
         "ldd of the library that is named; strings libstdc++.so.6 | grep GLIBCXX",
         "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_arch_list())' against nvidia-smi"),
        "Install or rebuild it, in the environment that the job uses."),
    "version_mismatch": Page(
        "two packages do not fit each other",
        "One package calls another that is older or newer than it expects.",
        ("pip check; pip list | grep -i NAME for both packages of the traceback",
         "did anything install or upgrade a package since the last good run?"),
        "Pin versions that go together."),
    "data": Page(
        "the data cannot be read",
        "A sample, index or shard is missing, broken or of another form, or the processes that load data have died.",
        ("the file or index in the message: is it there, whole, and readable on that node?",
         "df -h /dev/shm on the node: loader workers hand over samples through it",
         "with num_workers=0 the loader's own error becomes visible"),
        "Repair or skip the data. A restart repeats it at the same sample."),
    "numerical": Page(
        "the numbers blew up",
        "NaN or infinity in loss, gradients or logits. No hardware error was seen; silent "
        "corruption is possible, but rare.",
        ("when did grad norm or loss scale begin to grow? The steps before the first NaN are what matters",
         "does it come again from the checkpoint before, at the same samples? Then data or learning rate",
         "only on some nodes: run the node checks, a GPU may compute wrongly"),
        "Go back to a checkpoint before it, skip the samples or lower the learning rate."),
    "native_crash": Page(
        "a native library crashed",
        "Segmentation fault, bus error, abort or illegal memory access, without any word of the driver about broken "
        "hardware.",
        ("a bus error with a full /dev/shm or disk is a lack of space: df -h /dev/shm",
         "core file: coredumpctl or gdb python CORE, then bt and thread apply all bt",
         "illegal memory access: compute-sanitizer, CUDA_LAUNCH_BLOCKING=1; if it follows one node, suspect its GPU",
         "a new wheel, driver or kernel extension since the last good run?"),
        "Restart once; if it comes back, build matching versions or report it with the stack."),
    "hang": Page(
        "it stood still",
        "No progress, and no cause in the log. A collective that timed out says that some rank did not come, not which "
        "one or why; every rank that waited prints the same line.",
        ("while it still hangs, stacks of all ranks, also of a job that safelaunch did not start: safelaunch stacks "
         "JOBID; the odd ones out are what to look at",
         "a rank whose stack cannot be read: what the kernel says of it stands beside; state D means storage or driver",
         "nvidia-smi: waiting ranks show 100 %, the one that is waited for shows 0 %",
         "did all ranks print the same last step? Which did not? Do data loader workers stand in a lock?"),
        "Restart; without the node where the odd ranks are when it comes back there."),
    "hub_auth": Page(
        "a hub or tracker refused or was out of reach",
        "A model hub, data set server, experiment tracker or licence server did not let the program in. Compute nodes "
        "often have no way to the internet.",
        ("is the token set inside of the job (HF_TOKEN, WANDB_API_KEY), and is the gated model's licence accepted?",
         "curl -I URL on a compute node: is there a way out, a proxy?",
         "many ranks that download the same at once: let one do it first, or use the cache offline (HF_HUB_OFFLINE=1)"),
        "Download on a login node beforehand, and run offline."),
    "none": Page(
        "nothing is wrong",
        "The log shows a program that works or has ended well. Words such as 'error' in it mean nothing by themselves.",
        (), "Nothing."),
    "unknown": Page(
        "the log does not say",
        "There is an end without a cause, or several causes that are as likely. An honest 'unknown' is better than a "
        "wrong name.",
        ("the candidates: safelaunch why --all",
         "sacct -j JOB --format=JobID,State,ExitCode,DerivedExitCode,NodeList: signals, limits, nodes",
         "the log of the rank that ended first, alone: safelaunch logs --rank R",
         "dmesg on the node of that rank, around the time of the last step",
         "is the output complete? A pipe to tee hides exit codes (set -o pipefail), a killed process its last words"),
        "Restart once within a small budget; the second failure says more."),
}

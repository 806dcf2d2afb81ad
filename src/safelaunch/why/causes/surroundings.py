"""The categories of what a program needs: files, settings, packages, network and machines. A row holds all that follows
from one (why.categories).
"""

from __future__ import annotations

from safelaunch.why.causes.category import Blame, Category, Page

ROWS: dict[str, Category] = {
    "storage": Category(
        "fix_storage", "wait", 6, "a full or frozen filesystem fails every attempt until it works again",
        "free space, have the disk looked at, or move the run to another file system",
        ask_site="Please check the file system and its mount on the nodes that are named.",
        spares_checkpoint=True, stalls_a_rank=True,
        page=Page(
            "the storage failed or is full",
            "No space, no quota, an I/O error, a read-only or stale file system, or one that does not answer. A "
            "process that waits for such a file system sleeps in state D and cannot be killed; its GPU looks healthy "
            "and idle.",
            ("df -h PATH and df -i PATH; quota -s, lfs quota or mmlsquota: space and number of files",
             "on the node: timeout 5 ls PATH; if it hangs, the mount is frozen",
             "ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /D/': who waits, and in which function of the kernel",
             "dmesg -T for nfs, lustre, gpfs or I/O errors: is it one node or all of them?"),
            "Free space or wait until it answers, then restart. No node is to blame when several report it."),
    ),
    "checkpoint": Category(
        "fix_config", "fall_back", None, "the one before it was whole",
        "look at the checkpoints, and resume from an older one",
        page=Page(
            "a checkpoint is missing, damaged or does not fit",
            "The file that was to be resumed from is not there, was cut off, or was made by a model of other sizes.",
            ("ls -l of the checkpoint: are all shards there, and of equal size? Was its writer killed?",
             "does the model that is built have the sizes of the one that was saved (layers, vocabulary, "
             "parallelism)?"),
            "Go back to the checkpoint before; safelaunch resumes only from complete ones."),
    ),
    "data": Category(
        "fix_user_code", "restart", 3, "a worker killed or a read that failed may go well the next time",
        "repair or skip the data",
        page=Page(
            "the data cannot be read",
            "A sample, index or shard is missing, broken or of another form, or the processes that load data have "
            "died.",
            ("the file or index in the message: is it there, whole, and readable on that node?",
             "df -h /dev/shm on the node: loader workers hand over samples through it",
             "with num_workers=0 the loader's own error becomes visible"),
            "Repair or skip the data. A restart repeats it at the same sample."),
    ),
    "config": Category(
        "fix_config", "once", None, "the same values fail the same way",
        "change the value",
        is_programs_own=True,
        page=Page(
            "the configuration does not fit",
            "An argument, size or path that does not suit the job, the model or the data.",
            ("the message names the value; safelaunch config --origin shows where each value comes from",
             "number of ranks against parallel degrees and batch sizes: do they divide each other?"),
            "Change the value. A restart alone repeats it."),
    ),
    "environment": Category(
        "fix_environment", "once", None, "the same packages fail the same way",
        "install or rebuild what is missing",
        is_programs_own=True,
        page=Page(
            "the software environment is incomplete",
            "A module, library or symbol is missing, or was built for another machine, compiler or card.",
            ("on the node, after the job's setup: which python; python -c 'import MODULE'",
             "ldd of the library that is named; strings libstdc++.so.6 | grep GLIBCXX",
             "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_arch_list())' against nvidia-smi"),
            "Install or rebuild it, in the environment that the job uses."),
    ),
    "version_mismatch": Category(
        "fix_environment", "once", None, "the same packages fail the same way",
        "pin versions that go together",
        is_programs_own=True,
        page=Page(
            "two packages do not fit each other",
            "One package calls another that is older or newer than it expects.",
            ("pip check; pip list | grep -i NAME for both packages of the traceback",
             "did anything install or upgrade a package since the last good run?"),
            "Pin versions that go together."),
    ),
    "network": Category(
        "restart", "exclude", 6, "a link flaps and comes back; a node is blamed from its second time on",
        "have links and name service looked at (safelaunch why --ticket)", blame=Blame("network"),
        ask_site="Please check the port, cable and switch side of the adapters of the node (link state, error "
                 "counters).",
        spares_checkpoint=True, recurs_on_a_node=True,
        page=Page(
            "the network between nodes failed",
            "InfiniBand, RoCE, EFA or TCP reported an error of its own, before any rank had gone. A connection that is "
            "closed by a peer is no such error: the peer has died, and its log says of what.",
            ("ibstat, ibv_devinfo on the nodes that are named: is each port Active, LinkUp and of full rate?",
             "ulimit -l inside of the job: registration of memory needs it unlimited",
             "NCCL_DEBUG=INFO says which interface is used; is it the one between the nodes (NCCL_SOCKET_IFNAME)?",
             "a two-node all_reduce between the named node and another one, then between two others"),
            "Restart; without the node when a second failure names it as well."),
    ),
    "rendezvous": Category(
        "restart", "restart", 5, "a port in use, a store too slow: each attempt has a port of its own",
        "look at what holds the port, and at the first node's address", blame=Blame(),
        spares_checkpoint=True,
        page=Page(
            "the ranks did not find each other",
            "The store at the start could not be opened or reached. Mostly an earlier or another job still holds the "
            "port; else the address does not lead to the first node.",
            ("on the first node: ss -ltnp | grep PORT names who holds it",
             "getent hosts MASTER_ADDR on another node; may the nodes talk to each other on that port?",
             "did every node start? One that did not leaves the others waiting"),
            "Use a port of the job's own (safelaunch gives each attempt a fresh one), and restart."),
    ),
    "hub_auth": Category(
        "fix_config", "restart", 4, "hubs and trackers have bad minutes",
        "download beforehand, and run offline",
        spares_checkpoint=True,
        page=Page(
            "a hub or tracker refused or was out of reach",
            "A model hub, data set server, experiment tracker or licence server did not let the program in. Compute "
            "nodes often have no way to the internet.",
            ("is the token set inside of the job (HF_TOKEN, WANDB_API_KEY), and is the gated model's licence accepted?",
             "curl -I URL on a compute node: is there a way out, a proxy?",
             "many ranks that download the same at once: let one do it first, or use the cache offline "
             "(HF_HUB_OFFLINE=1)"),
            "Download on a login node beforehand, and run offline."),
    ),
    "gpu_hardware": Category(
        "exclude_and_restart", "exclude", 10, "one dead GPU of 384 cost a 176B training 7.3 h until somebody looked",
        "have the node's GPU looked at (safelaunch why --ticket)", blame=Blame("gpu", "gpu_maybe"),
        ask_site="Please drain the node, check the GPU (dmesg for Xid, nvidia-smi -q, dcgmi diag -r 3) and reset or "
                 "replace it.",
        is_bad_node=True, spares_checkpoint=True, stalls_a_rank=True,
        page=Page(
            "a GPU or its link is failing",
            "The driver or CUDA reported what software cannot cause. That is an Xid of the hardware classes, an "
            "uncorrectable memory error, or a GPU that is no longer on the bus. The other ranks' errors and time-outs "
            "are echoes.",
            ("on the node: dmesg -T | grep -E 'NVRM|Xid'; an Xid of class hardware names the GPU by its PCI address",
             "on the node: nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT; pending remaps need a reset of the GPU",
             "nvidia-smi topo -m and nvidia-smi nvlink -e: replay and CRC errors of a link that grow",
             "run the training without the node: the same error elsewhere means software, not this GPU"),
            "Restart without the node (submit with slurm.exclude) and send its administrators the ticket: "
            "safelaunch why --ticket."),
    ),
    "node_failure": Category(
        "exclude_and_restart", "exclude", 10, "the others are fine; Slurm itself needs 5 min and more to notice",
        "have the node looked at (safelaunch why --ticket)", blame=Blame("lost"),
        ask_site="Please check the node's state, its reason in Slurm and its system log. (A node guard is a process "
                 "of the job on each node, which answers its supervisor as long as the node lives.)",
        is_bad_node=True, spares_checkpoint=True, stalls_a_rank=True,
        page=Page(
            "a node is gone or unfit",
            "Slurm lost a node, or it does not start, answer or hold what the job needs. Slurm's last message often "
            "names the first node of the step: look at which node is named as failed.",
            ("sinfo -R -n NODE and scontrol show node NODE: state, reason, since when",
             "sacct -j JOB --format=JobID,State,ExitCode,NodeList,Reason",
             "ping and ssh to the node, from another node of the cluster"),
            "Restart without the node; safelaunch does so by itself."),
    ),
    "host_oom": Category(
        "fix_config", "restart", 3, "a leak starts anew with the process",
        "ask for more memory (slurm.mem), or use fewer loader workers",
        stalls_a_rank=True,
        page=Page(
            "the host's memory ran out",
            "The kernel's or the job's memory limit (cgroup) ended a process. The training then misses a rank, and the "
            "others wait for it. A bare 'Killed' or signal 9 that nobody sent is read as this too, with less "
            "confidence.",
            ("sacct -j JOB --format=JobID,State,MaxRSS,ReqMem; OUT_OF_MEMORY or exit code 0:125 confirms it",
             "on the node: dmesg -T | grep -iE 'out of memory|oom-kill' names the process and its size",
             "memory grows with data loader workers, pinned buffers, checkpoints gathered on one rank, caches in "
             "/dev/shm"),
            "Ask for more memory (slurm.mem), use fewer workers, load and save in shards. The node is not to blame."),
    ),
}

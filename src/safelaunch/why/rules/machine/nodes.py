"""What a node's own daemons and clouds say: Slurm's prolog and names, munge, shutdowns, maintenance, file systems."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_OUT = "Keep the node out and tell the admins."

RULES = (
    Rule(
        "nodes.prolog", "node_failure",
        (b"rolog: exit status", b"rolog failed", b"rolog hung", b"rolog error", b"rolog failure on node"),
        rb"\b[Pp]rolog(?:: exit status [1-9]| failed\b| hung\b| error\b| failure on node (?P<host>[\w.-]{1,80}))",
        "cause", "node", 0.78, summary="the site's prolog refused the node",
        explain="It checks or prepares the node before each job.", do=_OUT, source="slurmd", host_group="host",
        sample="slurmd: error: Prolog: exit status 1:0", counter_sample="slurmd: Prolog: exit status 0:0",
    ),
    Rule(
        "nodes.no_address", "node_failure", (b"slurm_set_addr: Unable to", b"can't find address for host"),
        rb"slurm_set_addr: Unable to resolve \"(?P<name>[\w.-]{1,80})\"|can't find address for host "
        rb"(?P<host>[\w.-]{1,80})",
        "cause", "node", 0.78, summary="a node's name cannot be resolved",
        explain="slurm.conf, DNS or /etc/hosts of this node do not know it.", do=_OUT, source="Slurm, src/common",
        host_group="host",
        sample="srun: error: fwd_tree_thread: can't find address for host n7, check slurm.conf",
        counter_sample="the address for host n7 is known",
    ),
    Rule(
        "nodes.munge", "node_failure", (b"Munge encode failed", b"munge.socket", b"Unauthorized credential for client"),
        rb"Munge encode failed|Failed to access \"[^\"]{0,80}munge\.socket|Unauthorized credential for client", "cause",
        "node", 0.82, summary="the node's munge daemon does not answer",
        explain="Without it no Slurm command on that node is believed.", do=_OUT, source="munge",
        sample='slurmstepd: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or '
               "directory",
        counter_sample="slurmstepd: munge encoded by /run/munge/munge.socket.2",
    ),
    Rule(
        "nodes.going_down", "node_failure", (b"The system is going down for", b"The system will "),
        rb"The system (?:is going down for|will (?:reboot|power off|halt)) ", "cause", "node", 0.8,
        action="exclude_and_restart", summary="the node is being shut down",
        explain="An administrator or a timer did it.",
        source="systemd, wall(1)",
        sample="The system is going down for reboot NOW!", counter_sample="The system is going up for use NOW!",
    ),
    Rule(
        "nodes.maintenance", "preempted",
        (b"ON_HOST_MAINTENANCE", b"igher-priority job", b"igher priority job", b"for host maintenance"),
        rb"TERMINATE_ON_HOST_MAINTENANCE|(?:suspended|preempted|evicted|requeued|leave) (?:by|for) (?:a |an )?"
        rb"higher[- ]priority job|scheduled for host maintenance", "cause", "nobody", 0.8,
        summary="the machine was needed for something else", explain="The batch system or the cloud takes it back.",
        source="Compute Engine; LSF; Grid Engine",
        sample="compute: the instance is subject to TERMINATE_ON_HOST_MAINTENANCE",
        counter_sample="the job waits for a higher-priority job",
    ),
    Rule(
        "nodes.gpfs", "storage", (b"Disk lease period expired", b"Lost disk lease"),
        rb"Disk lease period expired|Lost disk lease", "cause", "node", 0.7,
        summary="the node lost its file system: {line}",
        explain="It did not answer the cluster manager in time, or a disk failed: the file system stalls or is "
        "unmounted.",
        source="IBM Storage Scale, mmfs.log",
        sample="mmfs: [N] Disk lease period expired 0.812 seconds ago in cluster stor.site.",
        counter_sample="mmfs: [N] Disk lease period renewed 0.812 seconds ago in cluster stor.site.",
    ),
    Rule(
        "nodes.beegfs", "storage", (b"BeeGFS", b"beegfs"),
        rb"(?i:beegfs).{0,120}?(?:[Tt]imed out|[Nn]o response|not respond|[Cc]onnection (?:lost|failed))", "cause",
        "node",
        0.76, summary="a BeeGFS server does not answer", explain="The file system stands still until it does.",
        source="BeeGFS client", order=1,
        sample="BeeGFS: Timed out waiting for a response of the metadata server",
        counter_sample="BeeGFS: connected to the metadata server",
    ),
)

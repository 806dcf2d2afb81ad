"""What launchers themselves report: torchrun, MPI, Ray, ssh."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_ELASTIC = "PyTorch, torch/distributed/elastic"

RULES = (
    Rule(
        "elastic.child_failed", "user_code", (b"ChildFailedError",), b"ChildFailedError", "teardown", "nobody", 0.2,
        summary="torchrun reports failed ranks",
        explain="The launcher's summary; the error stands in the rank's own lines.", source=_ELASTIC, order=5,
        sample="torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", counter_sample="no child failed",
    ),
    Rule(
        "elastic.root_cause", "user_code", (b"Root Cause (first observed failure)",),
        rb"Root Cause \(first observed failure\)", "context", "rank", 0.2,
        summary="torchrun names the first failed rank", explain="The lines below name host and rank.", source=_ELASTIC,
        sample="Root Cause (first observed failure):", counter_sample="Root Cause: unknown",
    ),
    Rule(
        "elastic.rank_line", "user_code", (b"(local_rank: ",),
        rb"rank +: (?P<rank>\d+) \(local_rank: (?P<number>\d+)\)", "context", "rank", 0.2, summary="rank {rank}",
        explain="A failed rank in torchrun's summary.", source=_ELASTIC, rank_group="rank",
        sample="  rank      : 3 (local_rank: 3)", counter_sample="rank 3 of 8",
    ),
    Rule(
        "elastic.ended_rank", "user_code", (b"exitcode  : -15",), rb"exitcode  : -15 \(pid", "context", "rank", 0.1,
        summary="torchrun has ended a rank", explain="A rank of torchrun's summary that it ended itself, for another.",
        source=_ELASTIC, sample="  exitcode  : -15 (pid: 4242)  (SIGTERM)", counter_sample="  exitcode  : -1 (pid: 15)",
    ),
    Rule(
        "elastic.host_line", "user_code", (b"  host      : ",), rb"^ *host +: (?P<host>\S+)", "context", "rank", 0.2,
        summary="host {host}", explain="The host of a failed rank in torchrun's summary.", source=_ELASTIC,
        host_group="host",
        sample="  host      : n3", counter_sample="the host is n3",
    ),
    Rule(
        "elastic.global_ranks", "unknown", (b"global_ranks=[",), rb"global_ranks=\[(?P<rank>\d{1,7})", "context",
        "nobody", 0.1, summary="the first rank of this node is {rank}",
        explain="torchrun numbers a node's ranks (level INFO).", source=_ELASTIC,
        sample="  global_ranks=[8, 9, 10, 11]", counter_sample="  role_ranks=[8, 9, 10, 11]",
    ),
    Rule(
        "elastic.failed", "user_code", (b"failed (exitcode: ",),
        rb"failed \(exitcode: (?P<code>\d+)\) local_rank: (?P<local>\d+)", "teardown", "rank", 0.25,
        summary="a rank ended with exit code {code}", explain="Its own lines say why.", source=_ELASTIC,
        sample="failed (exitcode: 1) local_rank: 3 (pid: 4242) of binary: /opt/env/bin/python",
        counter_sample="failed (exitcode: -11) local_rank: 3 (pid: 4242)",
    ),
    Rule(
        "elastic.closing", "user_code", (b"closing signal SIGTERM", b"Killing subprocess", b"closing signal SIGINT"),
        rb"closing signal SIG(?:TERM|INT)|Killing subprocess \d+", "teardown", "nobody", 0.1,
        summary="the launcher ends the other ranks", explain="A rank failed before this.",
        source=_ELASTIC + "; DeepSpeed launcher",
        sample="Sending process 4242 closing signal SIGTERM",
        counter_sample="Sending process 4242 a heartbeat before closing",
    ),
    Rule(
        "elastic.sighup", "cancelled",
        (b"closing signal SIGHUP", b"Signals.SIGHUP death signal", b"got signal: 1"),
        rb"closing signal SIGHUP|Signals\.SIGHUP death signal|SignalException: Process \d+ got signal: 1\b",
        "cause", "nobody", 0.88, action="requeue_only", summary="the terminal went away (SIGHUP)",
        explain="The launcher ran under a terminal or ssh session that ended; nohup does not help, since torchrun "
                "handles SIGHUP.", do="Run it by sbatch, or under tmux or setsid.", source=_ELASTIC, order=6,
        sample="torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 1",
        counter_sample="torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 15",
    ),
    Rule(
        "elastic.sigint", "cancelled", (b"Signals.SIGINT death signal", b"got signal: 2", b"Received 2 death signal"),
        rb"(?:Signals\.SIGINT|Received 2) death signal|SignalException: Process \d+ got signal: 2\b", "cause", "nobody",
        0.85,
        summary="interrupted (SIGINT)", explain="Somebody pressed Ctrl-C, or scancel sent INT.", source=_ELASTIC,
        order=6,
        sample="Received Signals.SIGINT death signal, shutting down workers",
        counter_sample="Received Signals.SIGTERM death signal, shutting down workers",
    ),
    Rule(
        "elastic.sigterm", "cancelled",
        (b"Signals.SIGTERM death signal", b"got signal: 15", b"after receiving SIGTERM", b"Received SIGTERM: 15",
         b"Received 15 death signal"),
        rb"(?:Signals\.SIGTERM|Received 15) death signal|SignalException: Process \d+ got signal: 15\b"
        rb"|exiting program after receiving SIGTERM|Received SIGTERM: 15\b", "symptom", "nobody", 0.6,
        action="requeue_only", summary="the launcher was asked to end (SIGTERM)",
        explain="From outside: scancel, the time limit, preemption, srun ending the step after another task failed.",
        source=_ELASTIC + "; Megatron-LM; Lightning", order=6,
        sample="torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 15",
        counter_sample="Process 4242 got a signal",
    ),
    Rule(
        "launcher.mpi_abort", "user_code",
        (b"MPI_ABORT was invoked", b"MPI_Abort", b"Primary job  terminated", b"mpirun has exited due to",
         b"BAD TERMINATION", b"prterun has exited", b"job aborted"),
        b"MPI_ABORT was invoked|MPI_Abort|Primary job  terminated|(?:mpirun|prterun) has exited due to|BAD TERMINATION",
        "teardown", "nobody", 0.2, summary="MPI ends the job",
        explain="A rank called abort or died; its own lines say why.", source="Open MPI; MPICH",
        sample="MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
        counter_sample="MPI_Finalize was invoked on rank 3 in communicator MPI_COMM_WORLD",
    ),
    Rule(
        "launcher.slots", "config", (b"not enough slots available",), b"not enough slots available", "cause", "job",
        0.85, summary="mpirun was asked for more processes than there are slots",
        explain="The allocation is smaller than -np.", do="Make -np fit --ntasks, or add --oversubscribe.",
        source="Open MPI",
        sample="There are not enough slots available in the system to satisfy the 8 slots that were requested",
        counter_sample="8 slots are available",
    ),
    Rule(
        "ray.worker_died", "native_crash",
        (b"actor died unexpectedly", b"A worker died or was killed", b"RayActorError", b"ActorDiedError",
         b"WorkerCrashedError", b"failed to import on the worker"),
        b"actor died unexpectedly|A worker died or was "
        b"killed|RayActorError|ActorDiedError|WorkerCrashedError|failed to import on the worker", "symptom", "nobody",
        0.35, summary="a Ray worker died",
        explain="The worker's own lines say why; SIGKILL by the OOM killer leaves none.", source="Ray", order=3,
        sample="ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        counter_sample="ray: the actor has finished this task before its worker died out of use",
    ),
    Rule(
        "ray.task_error", "user_code", (b"RayTaskError",), rb"\bRayTaskError\b", "symptom", "nobody", 0.35,
        summary="a Ray task failed", explain="Ray hands on what a task has raised; its own exception stands below.",
        source="Ray", order=3,
        sample="ray.exceptions.RayTaskError(ValueError): ray::train() (pid=811, ip=10.0.0.7)",
        counter_sample="a ray task raised no error",
    ),
    Rule(
        "ray.node_dead", "node_failure",
        (b"has been marked dead because", b"raylet died", b"Raylet died", b"node died unexpectedly"),
        b"has been marked dead because|(?i:raylet) died|owner's node has crashed", "cause", "node", 0.6,
        summary="Ray lost a node", explain="The node's raylet stopped answering.", source="Ray",
        sample="The node with node id: 81ab and address: 10.1.2.3 has been marked dead because the detector has "
               "missed too many heartbeats from it.",
        counter_sample="The node with node id: 81ab and address: 10.1.2.3 has been marked alive",
    ),
    Rule(
        "ray.node_died", "node_failure",
        (b"NodeDiedError", b"node it was running on has died"),
        rb"NodeDiedError|node it was running on has died",
        "cause", "node", 0.74,
        summary="a Ray node has died",
        explain="Its raylet does not answer any more.",
        source="Ray", order=4,
        sample="ray.exceptions.NodeDiedError: Task was killed because the node it was running on has died",
        counter_sample="the node it was running on is healthy",
    ),
    Rule(
        "ssh.closed", "node_failure",
        (b"closed by remote host", b"closed by remote host."),
        rb"Connection to (?P<peer>\S+) closed by remote host",
        "cause", "node", 0.6, action="restart",
        summary="the connection to {peer} was closed",
        explain="The host went down or ended the session.",
        source="OpenSSH", order=2,
        sample="Connection to n14 closed by remote host.", counter_sample="closed by remote hosts",
    ),
    Rule(
        "hang.words", "hang",
        (b"watchdog hang", b"hang detected", b"waiting for remainder of ranks", b"exceeded its timeout",
         b"eartbeat timeout exceeded"),
        rb"due to ProcessGroupNCCL watchdog hang|\bhang detected|waiting for remainder of ranks for more than"
        rb"|section \S+ .{0,60}?exceeded its timeout|Rank \d+ heartbeat timeout exceeded",
        "symptom", "rank", 0.62,
        summary="a rank came to a halt",
        explain="It did not come to a collective, or reported nothing for too long.",
        source="PyTorch; Horovod; nvidia-resiliency-ext", order=3,
        sample="[WARN] no step logged for 1800 s; killing the job (hang detected)",
        counter_sample="no hang was detected",
    ),
    Rule(
        "rendezvous.store_barrier", "rendezvous",
        (b"Timed out initializing process group in store based barrier", b"RendezvousStateError",
         b"Failed to connect to coordinator", b"already in use"),
        rb"Timed out initializing process group in store based barrier|RendezvousStateError|Failed to connect "
        rb"to coordinator|\b[Pp]ort \d+ is already in use",
        "cause", "job", 0.7,
        summary="the processes did not find each other",
        explain="Some never started, or the address or port is wrong or taken.",
        source="torch.distributed; JAX", order=4,
        sample="RuntimeError: Port 8476 is already in use", counter_sample="Port 8476 is in use by this store",
    ),
)

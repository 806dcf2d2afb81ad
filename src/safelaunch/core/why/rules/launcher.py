"""Rendezvous, stores, collectives' watchdogs and the launchers' own reports."""

from __future__ import annotations

from safelaunch.core.why.findings import Rule

_C10D = "PyTorch, torch/csrc/distributed/c10d"
_ELASTIC = "PyTorch, torch/distributed/elastic"
_PEER_GONE = "The process on the other end is gone; why is said elsewhere."
_HANG = "Compare the ranks' last collectives (TORCH_NCCL_TRACE_BUFFER_SIZE, py-spy): who is missing is the suspect."

RULES = (
    Rule(
        "rendezvous.port_taken", "rendezvous",
        (b"ddress already in use", b"EADDRINUSE", b"failed to listen on any local network address"),
        b"[Aa]ddress already in use|EADDRINUSE|failed to listen on any local network address", "cause", "job", 0.85,
        summary="the rendezvous port is taken",
        explain="Another process listens on that port of this node: a second launcher, another job, or what a "
                "former attempt left.",
        do="Use a port of its own for each launch (--rdzv-endpoint host:0, or one derived from the job id).",
        source=_C10D + ", socket.cpp", order=3,
    ),
    Rule(
        "rendezvous.client_timeout", "rendezvous",
        (b"client socket has timed out after", b"waiting for clients", b"Timed out waiting for clients",
         b"RendezvousTimeoutError", b"connect() timed out", b"to connect to any network address"),
        rb"client socket has timed out after \d+[a-z]* while trying to connect to \(?(?P<peer>[^)\s]*)"
        rb"|Timed out after \d+ seconds waiting for clients\. (?P<joined>\S+) clients joined|RendezvousTimeoutError"
        rb"|connect\(\) timed out\. Original timeout was|failed to connect to any network address of",
        "cause", "job", 0.72, summary="not every process came to the rendezvous",
        explain="The store did not answer, or a node never started its launcher.",
        do="Look which node's launcher is silent; check MASTER_ADDR and that the port can be reached.", source=_C10D,
        order=3,
    ),
    Rule(
        "rendezvous.client_failed", "rendezvous", (b"client socket has failed to connect",),
        b"client socket has failed to connect to (?!any )", "context", "nobody", 0.3,
        summary="the store was not reached at once",
        explain="c10d tries again; only the time-out that may follow is an error.", source=_C10D + ", socket.cpp",
    ),
    Rule(
        "rendezvous.env_missing", "config", (b"environment variable ", b"environ variable"),
        rb"Error initializing torch\.distributed using env:// rendezvous: environment variable (?P<name>\w+) expected",
        "cause", "job", 0.75, summary="{name} is not set for torch.distributed",
        explain="The script was started without its launcher, or the launcher passes other names.",
        do="Start it by torchrun, or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
        source="torch.distributed.rendezvous", order=1,
    ),
    Rule(
        "store.lost", "rendezvous",
        (b"RendezvousConnectionError", b"connection to the C10d store has failed", b"failed to recv, got 0 bytes",
         b"sendBytes failed on SocketImpl", b"recvVector failed on SocketImpl", b"recvValue failed on SocketImpl",
         b"RendezvousClosedError", b"DistNetworkError", b"TCPStore server has shut down", b"Socket Timeout",
         b'Failed to check the "should dump" flag', b"rendezvousshutdown", b"RendezvousGracefulExitError"),
        rb"RendezvousConnectionError|connection to the C10d store has failed|failed to recv, got 0 bytes"
        rb"|(?:sendBytes|recvVector|recvValue) failed on SocketImpl|RendezvousClosedError|DistNetworkError"
        rb"|TCPStore server has shut down|Socket Timeout|\"should dump\" flag|RendezvousGracefulExitError", "symptom",
        "nobody", 0.42, summary="the store was lost", explain=_PEER_GONE, source=_C10D + ", TCPStore", order=1,
    ),
    Rule(
        "store.key_wait", "rendezvous", (b"Timeout waiting for key", b"wait timeout after", b"store->get("),
        rb"Timeout waiting for key: \S+|wait timeout after \d+ms, keys: (?P<keys>\S+)"
        rb"|store->get\('[^']*'\),? got error: (?P<why>.*)", "symptom", "nobody", 0.45,
        summary="a rank waited for the others at the store", explain="A rank did not come, or has died.", source=_C10D,
        order=1,
    ),
    Rule(
        "hang.watchdog", "hang",
        (b"Watchdog caught collective operation timeout", b"Timeout at NCCL work", b"ran for ", b"Watchdog caught"),
        rb"Watchdog caught collective operation timeout|Timeout at NCCL work"
        rb"|collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)", "symptom", "rank", 0.82,
        summary="a collective did not finish in time",
        explain="At least one rank did not come to the collective: it hangs, is slow, has died or took another "
                "way. This line is the echo.", do=_HANG, source=_C10D + ", ProcessGroupNCCL.cpp", order=3,
    ),
    Rule(
        "hang.watchdog_stuck", "hang",
        (b"watchdog got stuck for", b"watchdog thread got stuck", b"Heartbeat monitor timed out", b"HeartbeatMonitor"),
        b"watchdog(?: thread)? got stuck for|Heartbeat monitor timed out|Terminating the process after attempting "
        b"to dump", "symptom", "rank", 0.7, summary="NCCL's watchdog itself is stuck",
        explain="A CUDA or NCCL call of this rank does not come back, or the GIL is held.", do=_HANG,
        source=_C10D + ", ProcessGroupNCCL.cpp", order=2,
    ),
    Rule(
        "hang.no_progress", "hang", (b"o progress", b"waiting on exit barrier"),
        rb"[Nn]o progress (?:in|for|since) (?:the last )?\d+|waiting on exit barrier", "symptom", "rank", 0.5,
        summary="nothing moved for long",
        explain="A watchdog of the program or the launcher says that the others did not come.", do=_HANG,
        source="programs' own watchdogs; torchelastic",
    ),
    Rule(
        "hang.barrier", "hang", (b"monitoredBarrier", b"monitored_barrier"),
        rb"(?:[Rr]anks? (?P<rank>\d+)\b[\d, ]* failed to pass monitored_?[Bb]arrier"
        rb"|monitored_?[Bb]arrier.{0,300}?(?:timed out|timeout|failed))", "symptom", "rank", 0.8,
        summary="rank {rank} did not come to the barrier", explain="monitored_barrier names who is missing.", do=_HANG,
        source=_C10D + ", ProcessGroupGloo.cpp", rank_group="rank", order=2,
    ),
    Rule(
        "hang.gloo_timeout", "hang", (b"Timed out waiting ",), rb"Timed out waiting \d+ms for (?:recv|send) operation",
        "symptom", "rank", 0.65, summary="a gloo operation did not finish in time",
        explain="A rank did not come to the collective.", do=_HANG, source="gloo, transport/tcp/unbound_buffer.cc",
    ),
    Rule(
        "hang.desync", "user_code", (b"Detected mismatch between collectives", b"collectives on ranks"),
        b"Detected mismatch between collectives on ranks", "cause", "job", 0.8,
        summary="the ranks call different collectives", explain="The ranks' control flow or shapes differ.",
        do="Compare what the named ranks do at this step.", source=_C10D + ", ProcessGroupWrapper.cpp",
    ),
    Rule(
        "hang.rccl_abort", "hang",
        (b"collective timeout", b"Collective timeout", b"DistBackendError: NCCL timeout", b"allreduce timeout",
         b"NCCL timeout"), b"(?i:(?:nccl|collective|allreduce) timeout (?:in|error|exceeded|detected|after|on rank))",
        "symptom", "rank", 0.6, summary="a collective did not finish in time",
        explain="At least one rank did not come.", do=_HANG, source="various",
    ),
    Rule(
        "hang.pyspy_refused", "hang", (b"Failed to suspend process",), b"Failed to suspend process", "symptom", "node",
        0.55, summary="a process cannot be suspended: it is stuck in the kernel",
        explain="py-spy stops a process to read its stack; one in D state (a frozen file system, a dead card) refuses.",
        do="Read /proc/PID/stack and wchan of that process as root.", source="py-spy",
    ),
    Rule(
        "rendezvous.xla_connect", "rendezvous",
        (b"PjRT_Client_Connect", b"all_tasks_to_register", b"cluster registration failed",
         b"CoordinationService/RegisterTask"),
        b"(?:DEADLINE_EXCEEDED|[Tt]imed out).{0,200}?(?:PjRT_Client_Connect|all_tasks_to_register)"
        b"|cluster registration failed|RPC: /tensorflow.CoordinationService/RegisterTask", "cause", "rank", 0.66,
        summary="not all processes came to the coordination service",
        explain="The address is wrong or closed, the number of processes too high, or some of them never started.",
        source="XLA, coordination service", order=3,
    ),
    Rule(
        "hang.xla_barrier", "hang", (b"DEADLINE_EXCEEDED", b"Barrier timed out"),
        b"DEADLINE_EXCEEDED.{0,300}?(?:[Bb]arrier|[Cc]oordination|GetKeyValue)|Barrier timed out", "symptom", "rank",
        0.65, summary="a process did not come to the barrier of the coordination service",
        explain="A task is missing: it died, or never started.", source="XLA, coordination service",
    ),
    Rule(
        "hang.xla_rendezvous", "hang", (b"and may be stuck", b"Termination timeout for"),
        b"This thread has been waiting for .{0,200}? and may be stuck|Termination timeout for .{0,200}? exceeded",
        "symptom", "rank", 0.55, summary="a device did not come to XLA's rendezvous",
        explain="A process is missing, or hangs in a kernel.", do=_HANG, source="XLA, service/rendezvous.cc",
    ),
    Rule(
        "hang.slow_loading", "hang", (b"could finish the model loading, but there are other ranks",),
        b"could finish the model loading, but there are other ranks", "symptom", "nobody", 0.4,
        summary="other ranks did not finish loading",
        explain="One of them failed (memory?) or its storage is slow; its own lines say why.", source="SGLang", order=2,
    ),
    Rule(
        "hang.xla_peer", "node_failure",
        (b"unavailable task", b"unhealthy", b"stopped sending heartbeats", b"heartbeat timeout"),
        b"(?:stopped sending heartbeats|[Hh]eartbeat timeout|tasks are unhealthy)", "symptom", "node", 0.5,
        summary="a task stopped sending heartbeats", explain="Its process or node died or hangs.",
        source="XLA; TensorFlow; Ray",
    ),
    Rule(
        "watchdog.consequence", "hang",
        (b"Some NCCL operations have failed or timed out", b"To avoid data inconsistency",
         b"watchdog thread terminated with exception", b"Work WorkNCCL", b"taking the entire process down",
         b"DistBackendError", b"ProcessGroupNCCL's watchdog", b"NCCL communicator was aborted"),
        b"Some NCCL operations have failed or timed out|To avoid data inconsistency|watchdog thread terminated "
        b"with exception|taking the entire process down|DistBackendError|NCCL communicator was aborted",
        "teardown", "nobody", 0.3,
        summary="NCCL's watchdog ends the process",
        explain="The consequence of a time-out or an error that stands elsewhere.",
        source=_C10D + ", ProcessGroupNCCL.cpp",
    ),
    Rule(
        "elastic.child_failed", "user_code", (b"ChildFailedError",), b"ChildFailedError", "teardown", "nobody", 0.2,
        summary="torchrun reports failed ranks",
        explain="The launcher's summary; the error stands in the rank's own lines.", source=_ELASTIC, order=5,
    ),
    Rule(
        "elastic.root_cause", "user_code", (b"Root Cause (first observed failure)",),
        rb"Root Cause \(first observed failure\)", "context", "rank", 0.2,
        summary="torchrun names the first failed rank", explain="The lines below name host and rank.", source=_ELASTIC,
    ),
    Rule(
        "elastic.rank_line", "user_code", (b"(local_rank: ",),
        rb"rank +: (?P<rank>\d+) \(local_rank: (?P<number>\d+)\)", "context", "rank", 0.2, summary="rank {rank}",
        explain="A failed rank in torchrun's summary.", source=_ELASTIC, rank_group="rank",
    ),
    Rule(
        "elastic.host_line", "user_code", (b"  host      : ",), rb"^ *host +: (?P<host>\S+)", "context", "rank", 0.2,
        summary="host {host}", explain="The host of a failed rank in torchrun's summary.", source=_ELASTIC,
        host_group="host",
    ),
    Rule(
        "elastic.global_ranks", "unknown", (b"global_ranks=[",), rb"global_ranks=\[(?P<rank>\d{1,7})", "context",
        "nobody", 0.1, summary="the first rank of this node is {rank}",
        explain="torchrun numbers a node's ranks (level INFO).", source=_ELASTIC,
    ),
    Rule(
        "elastic.failed", "user_code", (b"failed (exitcode: ",),
        rb"failed \(exitcode: (?P<code>\d+)\) local_rank: (?P<local>\d+)", "teardown", "rank", 0.25,
        summary="a rank ended with exit code {code}", explain="Its own lines say why.", source=_ELASTIC,
    ),
    Rule(
        "elastic.closing", "user_code", (b"closing signal SIGTERM", b"Killing subprocess", b"closing signal SIGINT"),
        rb"closing signal SIG(?:TERM|INT)|Killing subprocess \d+", "teardown", "nobody", 0.1,
        summary="the launcher ends the other ranks", explain="A rank failed before this.",
        source=_ELASTIC + "; DeepSpeed launcher",
    ),
    Rule(
        "elastic.sighup", "cancelled",
        (b"closing signal SIGHUP", b"Signals.SIGHUP death signal", b"got signal: 1"),
        rb"closing signal SIGHUP|Signals\.SIGHUP death signal|SignalException: Process \d+ got signal: 1\b",
        "cause", "nobody", 0.88, action="requeue_only", summary="the terminal went away (SIGHUP)",
        explain="The launcher ran under a terminal or ssh session that ended; nohup does not help, since torchrun "
                "handles SIGHUP.", do="Run it by sbatch, or under tmux or setsid.", source=_ELASTIC, order=6,
    ),
    Rule(
        "elastic.sigint", "cancelled", (b"Signals.SIGINT death signal", b"got signal: 2", b"Received 2 death signal"),
        rb"(?:Signals\.SIGINT|Received 2) death signal|SignalException: Process \d+ got signal: 2\b", "cause", "nobody",
        0.85,
        summary="interrupted (SIGINT)", explain="Somebody pressed Ctrl-C, or scancel sent INT.", source=_ELASTIC,
        order=6,
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
    ),
    Rule(
        "launcher.exit_status", "user_code",
        (b"returned non-zero exit status", b"died with <Signals", b"exits with return code = "),
        rb"returned non-zero exit status \d+|exits with return code = [1-9]\d*", "teardown", "nobody", 0.2,
        summary="the launched command failed", explain="The command's own lines say why.",
        source="CPython, subprocess; DeepSpeed launcher", order=1,
    ),
    Rule(
        "launcher.mpi_abort", "user_code",
        (b"MPI_ABORT was invoked", b"MPI_Abort", b"Primary job  terminated", b"mpirun has exited due to",
         b"BAD TERMINATION", b"prterun has exited", b"job aborted"),
        b"MPI_ABORT was invoked|MPI_Abort|Primary job  terminated|(?:mpirun|prterun) has exited due to|BAD TERMINATION",
        "teardown", "nobody", 0.2, summary="MPI ends the job",
        explain="A rank called abort or died; its own lines say why.", source="Open MPI; MPICH",
    ),
    Rule(
        "launcher.orte_start", "node_failure",
        (b"unable to reliably start one or more daemons", b"ORTE daemon has unexpectedly failed"),
        b"unable to reliably start one or more daemons|ORTE daemon has unexpectedly failed", "cause", "job", 0.5,
        summary="mpirun could not start its daemons on a node",
        explain="A node does not answer, ssh is refused, or MPI is not found there.",
        do="Try ssh to each node, and `which orted` there.", source="Open MPI, ORTE",
    ),
    Rule(
        "launcher.slots", "config", (b"not enough slots available",), b"not enough slots available", "cause", "job",
        0.85, summary="mpirun was asked for more processes than there are slots",
        explain="The allocation is smaller than -np.", do="Make -np fit --ntasks, or add --oversubscribe.",
        source="Open MPI",
    ),
    Rule(
        "ray.worker_died", "native_crash",
        (b"actor died unexpectedly", b"A worker died or was killed", b"RayActorError", b"ActorDiedError",
         b"WorkerCrashedError", b"failed to import on the worker"),
        b"actor died unexpectedly|A worker died or was "
        b"killed|RayActorError|ActorDiedError|WorkerCrashedError|failed to import on the worker", "symptom", "nobody",
        0.35, summary="a Ray worker died",
        explain="The worker's own lines say why; SIGKILL by the OOM killer leaves none.", source="Ray", order=3,
    ),
    Rule(
        "ray.task_error", "user_code", (b"RayTaskError",), rb"\bRayTaskError\b", "symptom", "nobody", 0.35,
        summary="a Ray task failed", explain="Ray hands on what a task has raised; its own exception stands below.",
        source="Ray", order=3,
    ),
    Rule(
        "ray.node_dead", "node_failure",
        (b"has been marked dead because", b"raylet died", b"Raylet died", b"node died unexpectedly"),
        b"has been marked dead because|(?i:raylet) died|owner's node has crashed", "cause", "node", 0.6,
        summary="Ray lost a node", explain="The node's raylet stopped answering.", source="Ray",
    ),
    Rule(
        "ray.node_died", "node_failure",
        (b"NodeDiedError", b"node it was running on has died"),
        rb"NodeDiedError|node it was running on has died",
        "cause", "node", 0.74,
        summary="a Ray node has died",
        explain="Its raylet does not answer any more.",
        source="Ray", order=4,
    ),
    Rule(
        "ssh.closed", "node_failure",
        (b"closed by remote host", b"closed by remote host."),
        rb"Connection to (?P<peer>\S+) closed by remote host",
        "cause", "node", 0.6, action="restart",
        summary="the connection to {peer} was closed",
        explain="The host went down or ended the session.",
        source="OpenSSH", order=2,
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
    ),
)

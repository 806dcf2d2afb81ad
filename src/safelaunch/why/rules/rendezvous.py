"""Rendezvous, stores, and collectives that do not end, as their watchdogs tell."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_C10D = "PyTorch, torch/csrc/distributed/c10d"
_PEER_GONE = "The process on the other end is gone; why is said elsewhere."
_HANG = "Compare the ranks' last collectives (TORCH_NCCL_TRACE_BUFFER_SIZE, py-spy): who is missing is the suspect."

RULES = (
    Rule(
        "rendezvous.port_taken", "rendezvous",
        (b"ddress already in use", b"EADDRINUSE", b"failed to listen on any local network address",
         b"but another process is utilizing it"), b"[Aa]ddress already in use|EADDRINUSE|failed to listen on any local "
        b"network address|on port .{1,9}, but another process is utilizing it", "cause", "job", 0.85,
        summary="the rendezvous port is taken",
        explain="Another process listens on that port of this node: a second launcher, another job, or what a "
                "former attempt left.",
        do="Use a port of its own for each launch (--rdzv-endpoint host:0, or one derived from the job id).",
        source=_C10D + ", socket.cpp", order=3,
        sample="[c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        counter_sample="[c10d] The server socket is bound to [::]:29500, the address is in use by this job",
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
        sample="torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
               "connect to (n0, 29500).",
        counter_sample="The client socket has connected to (n0, 29500)",
    ),
    Rule(
        "rendezvous.client_failed", "rendezvous", (b"client socket has failed to connect",),
        b"client socket has failed to connect to (?!any )", "context", "nobody", 0.3,
        summary="the store was not reached at once",
        explain="c10d tries again; only the time-out that may follow is an error.", source=_C10D + ", socket.cpp",
        sample="[W socket.cpp:601] [c10d] The client socket has failed to connect to [n0]:29500 (errno: 111 - "
               "Connection refused).",
        counter_sample="The client socket is connected",
    ),
    Rule(
        "rendezvous.env_missing", "config", (b"environment variable ", b"environ variable"),
        rb"Error initializing torch\.distributed using env:// rendezvous: environment variable (?P<name>\w+) expected",
        "cause", "job", 0.75, summary="{name} is not set for torch.distributed",
        explain="The script was started without its launcher, or the launcher passes other names.",
        do="Start it by torchrun, or export RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
        source="torch.distributed.rendezvous", order=1,
        sample="ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
               "expected, but not set",
        counter_sample="environment variable RANK is set",
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
        sample="torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store "
               "has failed. See inner exception for details.",
        counter_sample="the C10d store is n0",
    ),
    Rule(
        "hang.watchdog", "hang",
        (b"Watchdog caught collective operation timeout", b"Timeout at NCCL work", b"ran for ", b"Watchdog caught"),
        rb"Watchdog caught collective operation timeout|Timeout at NCCL work"
        rb"|collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+)", "symptom", "rank", 0.82,
        summary="a collective did not finish in time",
        explain="At least one rank did not come to the collective: it hangs, is slow, has died or took another "
                "way. This line is the echo.", do=_HANG, source=_C10D + ", ProcessGroupNCCL.cpp", order=3,
        sample="[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, "
               "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600812 milliseconds before timing out.",
        counter_sample="the watchdog is on, its timeout 600 s",
    ),
    Rule(
        "hang.watchdog_stuck", "hang",
        (b"watchdog got stuck for", b"watchdog thread got stuck", b"Heartbeat monitor timed out", b"HeartbeatMonitor"),
        b"watchdog(?: thread)? got stuck for|Heartbeat monitor timed out|Terminating the process after attempting "
        b"to dump", "symptom", "rank", 0.7, summary="NCCL's watchdog itself is stuck",
        explain="A CUDA or NCCL call of this rank does not come back, or the GIL is held.", do=_HANG,
        source=_C10D + ", ProcessGroupNCCL.cpp", order=2,
        sample="[PG 0 Rank 3] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in "
               "monitoring enqueued collectives.",
        counter_sample="the watchdog makes progress",
    ),
    Rule(
        "hang.no_progress", "hang", (b"o progress", b"waiting on exit barrier"),
        rb"[Nn]o progress (?:in|for|since) (?:the last )?\d+|waiting on exit barrier", "symptom", "rank", 0.5,
        summary="nothing moved for long",
        explain="A watchdog of the program or the launcher says that the others did not come.", do=_HANG,
        source="programs' own watchdogs; torchelastic",
        sample="Watchdog: no progress in 30 minutes, dumping stacks",
        counter_sample="Watchdog: progress in the last 30 minutes: 80 steps",
    ),
    Rule(
        "hang.barrier", "hang", (b"monitoredBarrier", b"monitored_barrier"),
        rb"(?:[Rr]anks? (?P<rank>\d+)\b[\d, ]* failed to pass monitored_?[Bb]arrier"
        rb"|monitored_?[Bb]arrier.{0,300}?(?:timed out|timeout|failed))", "symptom", "rank", 0.8,
        summary="rank {rank} did not come to the barrier", explain="monitored_barrier names who is missing.", do=_HANG,
        source=_C10D + ", ProcessGroupGloo.cpp", rank_group="rank", order=2,
        sample="RuntimeError: Rank 3 failed to pass monitoredBarrier in 1800000 ms",
        counter_sample="monitoredBarrier passed",
    ),
    Rule(
        "hang.barrier_echo", "hang", (b"successfully reached monitoredBarrier",),
        rb"successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank \d+",
        "symptom", "nobody", 0.4, summary="another rank did not come to the barrier",
        explain="Rank 0 has asked all ranks; its own lines name the one that did not answer.", do=_HANG,
        source=_C10D + ", ProcessGroupGloo.cpp", order=2,
        sample="RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for "
               "send/recv from rank 0. Please check rank 0 logs for faulty rank.",
        counter_sample="Rank 1 successfully reached monitoredBarrier",
    ),
    Rule(
        "hang.gloo_timeout", "hang", (b"Timed out waiting ",), rb"Timed out waiting \d+ms for (?:recv|send) operation",
        "symptom", "rank", 0.65, summary="a gloo operation did not finish in time",
        explain="A rank did not come to the collective.", do=_HANG, source="gloo, transport/tcp/unbound_buffer.cc",
        sample="RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting "
               "1800000ms for recv operation to complete",
        counter_sample="waiting 3 ms for recv",
    ),
    Rule(
        "hang.desync", "user_code", (b"Detected mismatch between collectives", b"collectives on ranks"),
        b"Detected mismatch between collectives on ranks", "cause", "job", 0.8,
        summary="the ranks call different collectives", explain="The ranks' control flow or shapes differ.",
        do="Compare what the named ranks do at this step.", source=_C10D + ", ProcessGroupWrapper.cpp",
        sample="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
               "ALLREDUCE, but Rank 1 is running collective: BROADCAST",
        counter_sample="no mismatch between collectives",
    ),
    Rule(
        "hang.rccl_abort", "hang",
        (b"collective timeout", b"Collective timeout", b"DistBackendError: NCCL timeout", b"allreduce timeout",
         b"NCCL timeout"), b"(?i:(?:nccl|collective|allreduce) timeout (?:in|error|exceeded|detected|after|on rank))",
        "symptom", "rank", 0.6, summary="a collective did not finish in time",
        explain="At least one rank did not come.", do=_HANG, source="various",
        sample="[n3] NCCL timeout in broadcast of parameters", counter_sample="NCCL timeout: 1800 s",
    ),
    Rule(
        "hang.pyspy_refused", "hang", (b"Failed to suspend process",), b"Failed to suspend process", "symptom", "node",
        0.55, summary="a process cannot be suspended: it is stuck in the kernel",
        explain="py-spy stops a process to read its stack; one in D state (a frozen file system, a dead card) refuses.",
        do="Read /proc/PID/stack and wchan of that process as root.", source="py-spy",
        sample="Error: Failed to suspend process", counter_sample="py-spy: the process was suspended for 3 ms",
    ),
    Rule(
        "hang.xla_barrier", "hang", (b"DEADLINE_EXCEEDED", b"Barrier timed out"),
        b"DEADLINE_EXCEEDED.{0,300}?(?:[Bb]arrier|[Cc]oordination|GetKeyValue)|Barrier timed out", "symptom", "rank",
        0.65, summary="a process did not come to the barrier of the coordination service",
        explain="A task is missing: it died, or never started.", source="XLA, coordination service",
        sample="jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: step_100",
        counter_sample="DEADLINE_EXCEEDED is retried",
    ),
    Rule(
        "hang.xla_rendezvous", "hang", (b"and may be stuck", b"Termination timeout for"),
        b"This thread has been waiting for .{0,200}? and may be stuck|Termination timeout for .{0,200}? exceeded",
        "symptom", "rank", 0.55, summary="a device did not come to XLA's rendezvous",
        explain="A process is missing, or hangs in a kernel.", do=_HANG, source="XLA, service/rendezvous.cc",
        sample="This thread has been waiting for `initialize clique for rank 6` for 10 seconds and may be stuck.",
        counter_sample="the thread waits for the clique",
    ),
    Rule(
        "hang.xla_peer", "node_failure",
        (b"unavailable task", b"unhealthy", b"stopped sending heartbeats", b"heartbeat timeout"),
        b"(?:stopped sending heartbeats|[Hh]eartbeat timeout|tasks are unhealthy)", "symptom", "node", 0.5,
        summary="a task stopped sending heartbeats", explain="Its process or node died or hangs.",
        source="XLA; TensorFlow; Ray",
        sample="The following tasks are unhealthy (stopped sending heartbeats): /job:jax_worker/task:3",
        counter_sample="all tasks are healthy and send heartbeats",
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
        sample="To avoid data inconsistency, we are taking the entire process down.",
        counter_sample="taking one process down at a time, so that data stay consistent",
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
        sample="XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out "
               "task names:",
        counter_sample="PjRT_Client_Connect: all tasks are there",
    ),
)

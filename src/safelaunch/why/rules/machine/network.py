"""Networks: NCCL's transports, InfiniBand, EFA, UCX, sockets, gloo, MPI."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_LINK = "Look at the port's counters (ibqueryerrors, ethtool -S) on both ends; a node seen twice is excluded."
_NAMES = ("Please check how the node resolves names: getent hosts NAME, /etc/hosts, /etc/resolv.conf, "
          "/etc/nsswitch.conf; compare with another node.")

RULES = (
    Rule(
        "network.ib_completion", "network", (b"Got completion with error", b"Got completion from peer", b"IBV_WC_"),
        rb"NET/IB ?: .{0,300}?[Gg]ot completion (?:from peer (?P<peer>[\w.:-]+?)(?:<\d+>)? )?with (?:error"
        rb"|status)[ =](?P<status>\d+)|IBV_WC_(?:RETRY_EXC_ERR|RNR_RETRY|REM_\w{0,40}ERR|LOC_\w{0,40}ERR"
        rb"|RESP_TIMEOUT)", "cause",
        "node", 0.82, action="exclude_and_restart", summary="an InfiniBand transfer failed (completion error {status})",
        explain="Status 12 means that the other end did not acknowledge: link, cable, switch, or the peer's node "
                "died; 4, 9 and 10 are protection errors.", do=_LINK, source="NCCL, net_ib.cc; libibverbs", order=1,
        sample="n3:4242:4300 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.2.3<41234> "
               "with status=12 opcode=129 len=0 vendor err 129",
        counter_sample="NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
    ),
    Rule(
        "network.ib_async", "network", (b"NET/IB",),
        b"NET/IB ?: .{0,300}?(?:[Gg]ot async (?:fatal )?event|port error|QP fatal|device fatal)", "cause", "node", 0.75,
        action="exclude_and_restart", summary="the InfiniBand card reports an event",
        explain="The port or the card went down under NCCL.", do=_LINK, source="NCCL, net_ib.cc",
        sample="n3:4242:4300 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        counter_sample="n3:4242:4300 [0] NCCL INFO NET/IB : mlx5_0:1 port is active, async thread started",
    ),
    Rule(
        "network.ib_call", "network", (b"ibv_",),
        rb"(?:Call to (?P<call>ibv_\w{1,40}) failed|(?P<call2>ibv_\w{1,40}) failed"
        rb"|(?P<call3>ibv_\w{1,40})\b.{0,300}?(?:failed with|returned) error)(?: with error (?P<error>[^,]+))?",
        "cause", "rank", 0.82, action="fix_environment",
        summary="a verbs call failed: {call}{call2}{call3} {error}",
        explain="ibv_reg_mr: memory registration (memlock limit, peer memory module, fork); ibv_modify_qp: wrong "
                "GID or interface; ibv_create_*: resources of the card.",
        do="Check `ulimit -l` inside the job, NCCL_IB_HCA / NCCL_IB_GID_INDEX, and that nvidia_peermem is loaded.",
        source="NCCL, ibvwrap.cc; NVSHMEM, ibrc", order=1,
        sample="n3:4242:4300 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate "
               "memory",
        counter_sample="n3:4242:4300 [0] NCCL INFO NET/IB : call to ibv_reg_mr took 3 ms",
    ),
    Rule(
        "network.nccl_connect", "network", (b"Connect to ", b"connect to "),
        rb"(?:NCCL WARN|socket\w{0,30}:).{0,300}?[Cc]onnect to (?:address )?(?P<peer>[\w.:%-]+?)<\d+>.{0,300}?(?:failed"
        rb"|timed out|refused)(?: : (?P<why>.*))?", "cause", "node", 0.78, action="exclude_and_restart",
        summary="no connection to {peer}: {why}",
        explain="The peer that refuses is the suspect: its process died, or a firewall or a wrong interface is in "
                "the way.", do="Look at what happened on the peer; check NCCL_SOCKET_IFNAME.", source="NCCL, socket.cc",
        host_group="peer", order=1,
        sample="n3:4242:4300 [0] misc/socket.cc:538 NCCL WARN socketStartConnect: Connect to 10.1.2.3<41234> failed : "
               "Connection refused",
        counter_sample="connect to 10.1.2.3<41234> succeeded",
    ),
    Rule(
        "network.nccl_peer_gone", "network",
        (b"Connection reset by peer", b"Connection closed by remote peer", b"unexpectedly closed", b"Broken pipe"),
        rb"NCCL WARN.{0,300}?(?:[Cc]all to \w+ from (?P<peer>[\w.:%-]+?)<\d+>.{0,300}?failed|[Cc]onnection (?:reset"
        rb"|closed) by (?:remote )?peer|unexpectedly closed|Broken pipe)", "symptom", "nobody", 0.4,
        summary="NCCL lost a peer", explain="The peer's process is gone; why is said elsewhere.",
        source="NCCL, socket.cc", order=1,
        sample="n3:4242:4300 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer "
               "n4<41234>",
        counter_sample="NCCL has closed 3 channels",
    ),
    Rule(
        "network.nccl_remote", "network", (b"ncclRemoteError", b"remote process exited or there was a network error"),
        b"ncclRemoteError|remote process exited or there was a network error", "symptom", "nobody", 0.5,
        summary="NCCL lost a remote process", explain="A remote process ended, or the network between failed.",
        source="NCCL, nccl.h",
        sample="ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
               "prematurely.",
        counter_sample="no remote process",
    ),
    Rule(
        "network.nccl_system", "network", (b"ncclSystemError", b"unhandled system error"),
        b"ncclSystemError|unhandled system error", "symptom", "rank", 0.5, summary="a system call failed inside NCCL",
        explain="NCCL's own WARN lines above say which (run with NCCL_DEBUG=WARN to get them).",
        do="Set NCCL_DEBUG=WARN.", source="NCCL, nccl.h",
        sample="ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        counter_sample="the system call took 3 ms",
    ),
    Rule(
        "network.nccl_cuda", "gpu_hardware", (b"ncclUnhandledCudaError", b"unhandled cuda error"),
        b"ncclUnhandledCudaError|unhandled cuda error", "symptom", "rank", 0.35,
        summary="a CUDA call failed inside NCCL",
        explain="NCCL's own WARN lines above say which (run with NCCL_DEBUG=WARN to get them).", source="NCCL, nccl.h",
        sample="ncclUnhandledCudaError: Call to CUDA function failed.",
        counter_sample="n3:4242:4300 [0] NCCL INFO Call to CUDA function took 3 ms",
    ),
    Rule(
        "network.nccl_internal", "network", (b"ncclInternalError", b"ncclInvalidUsage", b"ncclInvalidArgument"),
        b"ncclInternalError|ncclInvalidUsage|ncclInvalidArgument", "symptom", "rank", 0.35,
        summary="NCCL failed inside",
        explain="InvalidUsage: two ranks on one GPU, or ranks that disagree; InternalError: often topology or a "
                "version mix.", source="NCCL, nccl.h",
        sample="ncclInternalError: Internal check failed.",
        counter_sample="n3:4242:4300 [0] NCCL INFO Internal check passed",
    ),
    Rule(
        "network.nccl_duplicate_gpu", "config", (b"Duplicate GPU detected",),
        rb"Duplicate GPU detected : rank (?P<rank>\d+) and rank (?P<other>\d+)", "cause", "job", 0.85,
        summary="ranks {rank} and {other} use the same GPU", explain="Two processes were given one card.",
        do="Set the device from LOCAL_RANK; check CUDA_VISIBLE_DEVICES and --ntasks-per-node.", source="NCCL, init.cc",
        order=2,
        sample="n3:4242:4300 [0] init.cc:900 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device "
               "4e000",
        counter_sample="rank 1 and rank 0 are on n3",
    ),
    Rule(
        "network.nccl_interface", "network",
        (b"no socket interface found", b"No socket interface found", b"No NIC found", b"Bootstrap : no "),
        b"[Nn]o socket interface found|No NIC found", "cause", "job", 0.75, action="fix_config",
        summary="NCCL found no network interface", explain="NCCL_SOCKET_IFNAME names none that exists on this node.",
        do="Correct or unset NCCL_SOCKET_IFNAME.", source="NCCL, bootstrap.cc", order=1,
        sample="n3:4242:4300 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
        counter_sample="Bootstrap : Using ib0:10.1.2.3<0>",
    ),
    Rule(
        "network.nccl_shm", "data",
        (b"Error while creating shared memory segment", b"Error: failed to extend /dev/shm"),
        b"Error while creating shared memory segment|failed to extend /dev/shm", "cause", "node", 0.7,
        action="fix_environment", summary="shared memory is too small for NCCL",
        explain="The container's or the node's shared memory is full.",
        do="Larger /dev/shm (docker --shm-size), clear left-over nccl-* files.", source="NCCL, shmutils.cc", order=1,
        sample="n3:4242:4300 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-x1 to 9637892 "
               "bytes",
        counter_sample="n3:4242:4300 [0] NCCL INFO extended /dev/shm/nccl-x1 to 9637892 bytes",
    ),
    Rule(
        "network.efa", "network", (b"Unresponsive receiver", b"efa_rdm_", b"NET/OFI", b"FI_E"),
        rb"Unresponsive receiver|efa_rdm_\w{1,40}: err: [1-9]|NET/OFI.{0,300}?(?:completed with error"
        rb"|[Uu]nreachable remote|RDMA .{0,60}? failed|[Cc]ould not connect|[Cc]ouldn't (?:open|post|find any))"
        rb"|FI_E(?:AGAIN|IO|TIMEDOUT|HOSTUNREACH) .{0,300}?(?:fail|error)", "cause", "node", 0.8,
        action="exclude_and_restart", summary="an EFA transfer failed",
        explain="The libfabric provider reports a failed request: link, peer or security group.", do=_LINK,
        source="aws-ofi-nccl", order=1,
        sample="n3:4242:4300 [0] nccl_net_ofi_rdma.c:800 NCCL WARN NET/OFI Request 0x7f completed with error. RC: "
               "113. Error: unreachable",
        counter_sample="n3:4242:4300 [0] NCCL INFO NET/OFI Selected Provider is efa, request pool completed",
    ),
    Rule(
        "network.link_down", "network",
        (b"ink is Down", b"ink is down", b"Link DOWN", b"ink DOWN", b"link down", b"Link down"),
        rb"\b(?:mlx\d|ib\d|eth\d|en[ops]\w|bond\d|hsn\d|opa|hfi1)\S{0,40} .{0,300}?[Ll]ink (?:is )?(?:down"
        rb"|Down|DOWN)\b|Port: \d+ Link DOWN", "cause", "node", 0.7, action="exclude_and_restart",
        summary="a network link went down", explain="The kernel saw the link of this node go down.", do=_LINK,
        source="Linux, net drivers; mlx5_ib",
        sample="mlx5_core 0000:12:00.0 ib0: Link is Down", counter_sample="ib0: link becomes ready",
    ),
    Rule(
        "network.mlx5_health", "network", (b"mlx5_core",),
        b"mlx5_core .{0,300}?(?:health compromised|health poll failed|poll_health|cmd.{0,300}?timeout|[Ff]atal|device "
        b"is unhealthy|PCI slot power)", "cause", "node", 0.75, action="exclude_and_restart",
        summary="the network card's firmware reports a fault", explain="The ConnectX card or its PCIe link is sick.",
        do=_LINK, source="Linux, mlx5_core",
        sample="mlx5_core 0000:12:00.0: device's health compromised - reached miss count",
        counter_sample="mlx5_core 0000:12:00.0: firmware version: 20.35.1012",
    ),
    Rule(
        "network.ucx", "network",
        (b"UCX  ERROR", b"UCX ERROR", b"Endpoint timeout", b"ransport retry count", b"completion with error: "),
        b"UCX +ERROR .{0,300}?(?:retry count(?:er)? exceeded|[Rr]emote operation error|Endpoint "
        b"timeout|[Cc]onnection reset|Local QP operation|transport error|Destination is unreachable|[Nn]o route "
        b"to host)|(?i:transport retry count(?:er)? exceeded)|Fatal: (?:send|recv|receive) completion with error",
        "cause", "node", 0.8, action="exclude_and_restart",
        summary="UCX lost a peer", explain="The other end did not acknowledge: link, switch or the peer's node.",
        do=_LINK, source="UCX, uct/ib", order=1,
        sample="[1735.1] [n3:4242 :0] ib_mlx5_log.c:171 UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB "
               "(synd 0x15 vend 0x81)",
        counter_sample="UCX  INFO retry count is 7",
    ),
    Rule(
        "network.ucx_cuda_context", "environment", (b"cuCtxGetDevice(",),
        rb"UCX +ERROR .{0,300}?cuCtxGetDevice\(.{0,300}?(?:failed|invalid device context)"
        rb"|cuCtxGetDevice\(.{0,300}?is failed", "cause", "rank", 0.62,
        summary="UCX finds no CUDA context on the calling thread",
        explain="The MPI or UCX in use and the framework do not fit: transfers of GPU memory start before CUDA is "
                "initialised on that thread.",
        do="Initialise the device before the first transfer, or use an MPI built for this CUDA.",
        source="UCX, uct/cuda", order=2,
        sample="cuda_ipc_md.c:246 UCX  ERROR cuCtxGetDevice(&dev) failed: invalid device context",
        counter_sample="cuCtxGetDevice(&dev) succeeded",
    ),
    Rule(
        "network.gloo_closed", "network", (b"Connection closed by peer", b"Connection reset by peer"),
        rb"gloo.{0,300}?Connection (?:closed|reset) by peer"
        rb"|Connection (?:closed|reset) by peer \[(?P<peer>[^\]]{0,100})\]",
        "symptom", "nobody", 0.45, summary="gloo lost its peer {peer}",
        explain="The peer's process is gone; why is said elsewhere.", source="gloo, transport/tcp/pair.cc",
        host_group="peer",
        sample="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
               "[10.1.2.3]:41234",
        counter_sample="the connection was closed by us",
    ),
    Rule(
        "network.unreachable", "network",
        (b"No route to host", b"Network is unreachable", b"Network unreachable", b"Host is down"),
        b"(?i:no route to host|network is unreachable|host is down)", "cause", "node", 0.6,
        action="exclude_and_restart", summary="the network says: no way to that host",
        explain="The other node or its interface is down, or the wrong interface is used.", do=_LINK, source="errno(3)",
        sample="OSError: [Errno 113] No route to host", counter_sample="the route to the host is known",
    ),
    Rule(
        "network.refused", "network", (b"Connection refused", b"Connection timed out"),
        b"Connection (?:refused|timed out)", "symptom", "nobody", 0.4, summary="a connection was refused or timed out",
        explain="Nobody listens at the other end (any more).", source="errno(3)", order=-2,
        sample="ConnectionRefusedError: [Errno 111] Connection refused",
        counter_sample="[Errno 110] Connection is up again, none refused",
    ),
    Rule(
        "network.ssh", "node_failure", (b"ssh: connect to host", b"pdsh@", b"Connection closed by remote host"),
        rb"ssh: connect to host (?P<peer>[\w.-]+) port \d+: (?P<why>Connection (?:refused|timed out)|No route to host)",
        "cause", "node", 0.8, summary="{peer} cannot be reached by ssh: {why}",
        explain="The node is down or does not take connections.", do="Keep the node out.", source="OpenSSH",
        host_group="peer", order=1,
        sample="ssh: connect to host n4 port 22: Connection refused",
        counter_sample="ssh: connect to host n4 port 22: connection established",
    ),
    Rule(
        "network.mpi_lost", "node_failure",
        (b"lost communication with a remote daemon", b"lost connection to a remote daemon",
         b"unable to complete a TCP connection", b"system-required daemon"),
        rb"lost (?:communication|connection) (?:with|to) a remote daemon|unable to complete a TCP connection"
        rb"|daemon on node (?P<peer>[\w.-]+) has died", "cause", "node", 0.7,
        summary="mpirun lost a node {peer}", explain="The remote daemon's node died or its network failed.", do=_LINK,
        source="Open MPI, ORTE/PRRTE", host_group="peer",
        sample="ORTE has lost communication with a remote daemon.", counter_sample="ORTE talks to its remote daemons",
    ),
    Rule(
        "network.mpi_btl", "network", (b"btl_tcp", b"MPIDI_", b"MPIDU_", b"psm2", b"PSM2", b"psm3"),
        b"btl_tcp.{0,300}?(?:failed|error)|OFI .{0,300}?(?:poll|transport) "
        b"failed|psm[23].{0,300}?(?:timeout|failed|error)", "symptom", "rank", 0.5, summary="MPI's transport failed",
        explain="A peer is gone, or its interface cannot be reached.", source="Open MPI; MPICH", order=3,
        sample="[n3:4242] btl_tcp_endpoint.c:620 connect() to 10.1.2.3 failed",
        counter_sample="[n3:4242] btl_tcp_endpoint.c:620 connect() to 10.1.2.3 succeeded",
    ),
    Rule(
        "network.mpi_error", "network",
        (b"Fatal error in PMPI_", b"Fatal error in internal_", b"MPICH ERROR", b"cxil_map", b"MPI_ERR_"),
        rb"Fatal error in (?:PMPI|internal)_(?P<call>\w{1,40})|cxil_map: |MPICH ERROR|MPI_ERR_(?P<what>\w{1,40})",
        "symptom", "rank", 0.5, summary="an MPI call failed: {call}{what}",
        explain="The transport or a peer failed; the lines around say which.", source="MPICH; Cray MPI; Open MPI",
        order=-1,
        sample="Abort(1) on node 3: Fatal error in PMPI_Init: Other MPI error, error stack:",
        counter_sample="PMPI_Init on node 3 took 3 s: no error stack",
    ),
    Rule(
        "network.mpi_argument", "user_code", (b"MPI_ERR_",),
        rb"MPI_ERR_(?P<what>RANK|TAG|COUNT|TYPE|BUFFER|TRUNCATE|COMM|GROUP|OP|ROOT|DIMS|ARG|TOPOLOGY|REQUEST)\b",
        "cause", "rank", 0.7, summary="an MPI call got a wrong argument: {what}", order=1,
        explain="The call and its peer do not fit.", source="MPI standard, error classes",
        sample="mpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message truncated",
        counter_sample="MPI_ERR_OTHER: known error not in list",
    ),
    Rule(
        "network.nvshmem", "network", (b"nvshmem",),
        b"nvshmem.{0,300}?(?:setup connections failed|connect EPS failed|init failed)", "symptom", "rank", 0.5,
        action="fix_config", summary="NVSHMEM could not connect its peers",
        explain="A line above says which call failed.", source="NVSHMEM, transport",
        sample="/src/mem/mem.cpp:10: nvshmem setup connections failed",
        counter_sample="/src/mem/mem.cpp:10: nvshmem setup done, connections are up",
    ),
    Rule(
        "network.dns_name", "network",
        (b"IPv4 network addresses of (",),   # of IPv6 it says so where there are none, too
        rb"IPv4 network addresses of \((?P<name>[\w.-]{1,253}), \d{1,5}\) .{0,80}?(?:Name or service not known"
        rb"|Temporary failure in name resolution)", "cause", "rank", 0.8, action="fix_config",
        summary="{speaker} cannot resolve {name}: try `getent hosts {name}` on {speaker}",
        explain="The name is wrong, or this node's DNS or /etc/hosts does not know it.",
        do="Compare `getent hosts NAME` on this node and on another one.", ask_site=_NAMES,
        source="PyTorch, c10d/socket.cpp", order=4,
        sample="[c10d] The IPv4 network addresses of (n0, 29500) cannot be retrieved (gai error: -2 - Name or service "
               "not known).",
        counter_sample="[c10d] The IPv4 network addresses of (n0, 29500) were retrieved",
    ),
    Rule(
        "network.dns", "network",
        (b"Name or service not known", b"Temporary failure in name resolution", b"nodename nor servname provided",
         b"ould not resolve host"),
        b"(?i:name or service not known|temporary failure in name resolution|nodename nor servname|could not "
        b"resolve host)", "cause", "rank", 0.5, action="fix_config", summary="{speaker} cannot resolve a host name",
        explain="DNS is down on this node, the name is wrong, or the node has no way out.",
        do="Try `getent hosts NAME` there.", ask_site=_NAMES, source="glibc, getaddrinfo(3)", order=-1,
        sample="socket.gaierror: [Errno -2] Name or service not known",
        counter_sample="the name of the service is known",
    ),
    Rule(
        "network.store_refused", "network", (b"mpi/pmix", b"pmix_", b"PMIX"),
        b"(?:mpi/pmix|PMIX ERROR).{0,300}?(?:[Ee]rror|timeout|UNREACHABLE|_errhandler)", "symptom", "nobody", 0.3,
        summary="PMIx lost a peer", explain="A task is gone; PMIx tells the others.",
        source="Slurm, mpi/pmix; OpenPMIx",
        sample="slurmstepd: error: mpi/pmix_v4: _errhandler: n3 [1]: pmixp_client_v2.c:211: Error handler invoked",
        counter_sample="slurmstepd: mpi/pmix_v4: n3 [1]: pmixp_client_v2.c:211: handler registered",
    ),
    Rule(
        "network.mpi_tcp", "network",
        (b"unable to complete a TCP connection",),
        rb"unable to complete a TCP connection to another process",
        "cause", "job", 0.74,
        summary="MPI could not connect two hosts",
        explain="A firewall, or addresses that do not reach each other.",
        source="Open MPI", order=3,
        sample="A process or daemon was unable to complete a TCP connection to another process:",
        counter_sample="a TCP connection to another process was made",
    ),
)

"""Fabrics and their devices: verbs and mlx5, UCX, libfabric (EFA, CXI), Ethernet cards."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_LOOK = "Look at the node's links and counters; keep it out if they are bad."

RULES = (
    Rule(
        "fabric.efa_completion", "network", (b"efa_rdm_", b"efa_rxr_", b"rxr_cq_"),
        rb"(?:efa_rdm|efa_rxr|rxr_cq)_\w{1,60}.{0,40}?\berr(?:or)?: ?-?\d{1,4}", "cause", "rank", 0.82,
        summary="a transfer over EFA failed: {line}",
        explain="The peer cannot be reached, or its adapter dropped the connection.", source="libfabric, EFA", order=2,
        sample="libfabric:7712:efa:cq:efa_rdm_cq_handle_error():210<warn> err: 113, message: Unreachable remote",
        counter_sample="libfabric:7712:efa:cq:efa_rdm_cq_open():80<info> opened",
    ),
    Rule(
        "fabric.queue_pair", "network", (b"create a queue pair", b"CREATE_QP(", b"CREATE_CQ(", b"CREATE_MKEY("),
        rb"failed to create a queue pair|mlx5_cmd_out_err.{0,40}?CREATE_(?:QP|CQ|MKEY)\(", "cause", "rank", 0.76,
        summary="the adapter has no queue pair left, or cannot make one",
        explain="Too many connections, too little locked memory, or a sick adapter.",
        do="ulimit -l; fewer processes on a node; UCX_TLS=dc.", source="Open MPI; Linux, mlx5_core",
        sample="mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:803: CREATE_QP(0x500) op_mod(0x0) failed, status bad "
               "resource state(0x9)",
        counter_sample="the process can create a queue pair",
    ),
    Rule(
        "fabric.ucx_resources", "network", (b"UCX  ERROR ", b"UCX ERROR ", b"Failed to create UCP"),
        rb"UCX {1,2}ERROR (?:ibv_(?:create|reg|modify|open)_\w{1,30}\(|failed to (?:create|register|allocate))"
        rb"|Failed to create UCP (?:worker|context|endpoint)", "cause", "rank", 0.78,
        summary="UCX cannot set up its transport", explain="The adapter refused memory, queues or connections.",
        do="ulimit -l unlimited in the job; ibv_devinfo on the node.", source="UCX", order=1,
        sample="ib_iface.c:1208 UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory",
        counter_sample="ib_iface.c:1208 UCX  INFO ibv_create_cq(cqe=4096)",
    ),
    Rule(
        "fabric.cxi", "network", (b"cxi0: ", b"cxi1: ", b"cxi2: ", b"cxi3: ", b"PTL_NACK", b"RETRY_EXHAUSTED",
        b"cxip_"),
        rb"\bcxi\d: (?:\S+ )?link (?:is )?down|PTL_NACK_RETRY_EXHAUSTED|\bcxip_\w{1,40}\(.{0,120}?(?:Fatal"
        rb"|NETWORK_ERROR)",
        "cause", "node", 0.84, summary="Slingshot gave a transfer or a link up",
        explain="The peer is gone, or a link or switch is at fault.", do=_LOOK,
        source="libfabric, CXI; Linux, cxi_core",
        order=2,
        sample="TXC (0x1a2:3): Fatal: TXC RDZV PtlTE event: PTL_NACK_RETRY_EXHAUSTED",
        counter_sample="cxi0: link is up at 200 Gb/s",
    ),
    Rule(
        "fabric.ofi_failed", "network", (b"(ofi_",),
        rb"OFI (?:\w{1,30} ){1,4}failed \(ofi_\w{1,30}\.c", "cause", "rank", 0.76,
        summary="MPI could not use its fabric", explain="libfabric refused an endpoint, an address or a transfer.",
        do="fi_info on the node; FI_PROVIDER.", source="MPICH, Intel MPI",
        sample="OFI endpoint creation failed (ofi_init.c:712): No data available",
        counter_sample="OFI endpoint made (ofi_init.c:712)",
    ),
    Rule(
        "fabric.transmit_timeout", "network", (b"NETDEV WATCHDOG: ", b"transmit timeout: "),
        rb"NETDEV WATCHDOG: .{1,60}?: transmit queue \d{1,4} timed out|\bib\d{1,3}: transmit timeout: ", "cause",
        "node",
        0.78, summary="a network card does not send any more", explain="Its queue stands still: card, driver or link.",
        do=_LOOK, source="Linux, net/sched; ipoib",
        sample="NETDEV WATCHDOG: eth0 (ice): transmit queue 12 timed out 5012 ms",
        counter_sample="NETDEV WATCHDOG: disabled",
    ),
    Rule(
        "fabric.bond", "network", (b"link status definitely down",),
        rb"bond\w{0,8}: .{0,60}?link status definitely down",
        "context", "node", 0.3, summary="one link of a bond is down",
        explain="The other one carries on, with half the speed.", source="Linux, bonding",
        sample="bond0: (slave eth2): link status definitely down, disabling slave",
        counter_sample="bond0: (slave eth2): link status definitely up",
    ),
)

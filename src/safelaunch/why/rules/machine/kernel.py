"""The node itself: the kernel's words about processor, memory, bus, lock-ups and panics."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_OUT = "Keep the node out and tell the admins."

RULES = (
    Rule(
        "kernel.panic", "node_failure", (b"Kernel panic", b"kernel BUG at", b"Oops: ", b"BUG: unable to handle"),
        rb"Kernel panic|kernel BUG at|Oops: \d+|BUG: unable to handle", "cause", "node", 0.92,
        summary="the node's kernel crashed", explain="A fault in the kernel or below it.", do=_OUT, source="Linux",
        sample="Kernel panic - not syncing: Fatal exception in interrupt", counter_sample="the kernel does not panic",
    ),
    Rule(
        "kernel.mce", "node_failure",
        (b"Machine Check", b"Hardware Error]", b"Machine check", b"mce: [", b"Uncorrected error"),
        rb"\[Hardware Error\].{0,300}?(?:[Uu]ncorrect|[Ff]atal|Machine [Cc]heck)|Machine [Cc]heck (?:Exception"
        rb"|events)|mce: .{0,300}?(?:fatal|Fatal|[Uu]ncorrected)", "cause", "node", 0.9,
        summary="the processor or its memory reports a hardware error",
        explain="A machine check that could not be corrected.", do=_OUT, source="Linux, arch/x86/kernel/cpu/mce",
        sample="mce: [Hardware Error]: Machine check events logged",
        counter_sample="mce: [Hardware Info]: machine checks are enabled",
    ),
    Rule(
        "kernel.edac_ue", "node_failure", (b"EDAC ",), rb"EDAC \S+: \d+ UE ", "cause", "node", 0.9,
        summary="uncorrectable error of the host memory", explain="A memory module is bad.", do=_OUT,
        source="Linux, EDAC",
        sample="EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        counter_sample="EDAC MC0: Giving out device to module",
    ),
    Rule(
        "kernel.edac_ce", "node_failure", (b"EDAC ",), rb"EDAC \S+: \d+ CE ", "context", "node", 0.3,
        summary="corrected errors of the host memory", explain="A memory module may become bad.", source="Linux, EDAC",
        sample="EDAC MC0: 3 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        counter_sample="EDAC MC0: 1 UE memory read error",
    ),
    Rule(
        "kernel.aer_fatal", "node_failure", (b"AER: ", b"PCIe Bus Error"),
        rb"(?:AER: .{0,300}?(?:Uncorrect\w+ \((?:Fatal|Non-Fatal)\)|fatal error)"
        rb"|PCIe Bus Error: severity=Uncorrect\w+)", "cause", "node", 0.8,
        summary="a PCIe device reports an uncorrectable error", explain="A card, riser or slot is bad.", do=_OUT,
        source="Linux, PCIe AER",
        sample="pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        counter_sample="PCIe Bus Error: severity=Corrected, type=Data Link Layer",
    ),
    Rule(
        "kernel.lockup", "node_failure", (b"soft lockup", b"hard LOCKUP", b"rcu_sched", b"rcu: INFO"),
        rb"soft lockup - CPU#\d+ stuck|hard LOCKUP|rcu\S{0,40}: .{0,300}?(?:self-detected stall|detected stalls)",
        "cause", "node", 0.75, summary="a processor of the node is stuck",
        explain="The kernel got no time on it for long.",
        do=_OUT, source="Linux, watchdog and RCU",
        sample="watchdog: BUG: soft lockup - CPU#8 stuck for 22s! [python:4242]",
        counter_sample="soft lockup detector is on",
    ),
    Rule(
        "kernel.thermal", "node_failure", (b"temperature above threshold", b"hermal shutdown", b"critical temperature"),
        b"(?:critical temperature|[Tt]hermal shutdown)", "cause", "node", 0.8, summary="the node became too hot",
        explain="It shuts down to save itself.", do=_OUT, source="Linux, thermal",
        sample="thermal thermal_zone0: critical temperature reached, shutting down",
        counter_sample="thermal thermal_zone0: temperature is 60 C, critical from 105 C on",
    ),
    Rule(
        "kernel.reboot", "node_failure",
        (b"rebooting system", b"System is going down", b"Power key pressed", b"reboot: Restarting system",
         b"systemd-shutdown", b"Unexpected system shutdown"),
        b"System is going down|rebooting system|systemd-shutdown|Power key pressed|reboot: (?:Restarting|Power "
        b"down)|Unexpected system shutdown|power supply failure", "cause", "node", 0.75, action="exclude_and_restart",
        summary="the node was shut down", explain="Somebody or something switched it off.", source="systemd; Linux",
        sample="reboot: Restarting system", counter_sample="reboot: planned, the system restarts at 03:00",
    ),
    Rule(
        "kernel.gpu_probe", "gpu_hardware", (b"NVRM: ", b"nvidia-persistenced"),
        rb"NVRM: (?:RmInitAdapter failed|GPU \S+: RmInitAdapter failed|.{0,300}?(?:rm_init_adapter failed"
        rb"|GPU Board is not|GSP RPC timeout|_kgspLogXid119|nvAssertFailed.{0,100}?GPU|failed to (?:allocate"
        rb"|initialize)|The NVIDIA GPU .{0,300}? has fallen|GPU lost|NV_ERR_(?:GPU_IS_LOST|RESET_REQUIRED)"
        rb"|rpcSendMessage failed|is no longer on the bus))", "cause", "node", 0.85,
        summary="the NVIDIA driver cannot start or reach a GPU", explain="The card or its firmware does not answer.",
        do=_OUT, source="NVIDIA driver, NVRM",
        sample="NVRM: GPU 0000:4e:00.0: RmInitAdapter failed! (0x26:0x56:1474)",
        counter_sample="NVRM: GPU 0000:4e:00.0: RmInitAdapter succeeded",
    ),
    Rule(
        "kernel.nvidia_smi_errors", "gpu_hardware",
        (b"NVMLError_", b"Unknown Error", b"[GPU requires reset]", b"ERR!", b"GPU access blocked"),
        rb"NVMLError_(?:Unknown|GpuIsLost|GPUIsLost|DriverNotLoaded)|Unable to determine"
        rb"|Failed to initialize NVML: Unknown Error|GPU requires reset|\| ERR! |GPU access blocked", "cause", "node",
        0.7, summary="NVML cannot talk to a GPU",
        explain="The driver lost the card, or the container lost its devices.", do=_OUT, source="nvidia-smi", order=1,
        sample="Failed to initialize NVML: Unknown Error", counter_sample="NVML is initialized",
    ),
    Rule(
        "kernel.dcgm", "gpu_hardware", (b"DCGM", b"dcgmi"),
        rb"(?:DCGM|dcgmi).{0,300}?(?:Fail\b|FAIL\b|violation|Error detected)", "cause", "node", 0.75,
        summary="a GPU check failed", explain="NVIDIA's data centre tool found a fault.", do=_OUT, source="DCGM",
        sample="dcgmi diag: Memory ...... Fail", counter_sample="dcgmi diag: Memory ...... Pass",
    ),
    Rule(
        "gpu.other_driver_word", "gpu_hardware",
        (b"NVRM: ",),
        rb"NVRM: .{0,200}?(?:crash dump has been created|stopped responding|is not supported by|installed in "
        rb"this system is not|channel \d+ repair failure)|NVRM: Xid .{0,100}?: 160\b",
        "cause", "node", 0.72,
        summary="the NVIDIA driver reports a fault",
        explain="The card or its firmware does not answer, or the driver does not take it.",
        do=_OUT,
        source="NVIDIA driver, NVRM", order=2,
        sample="[ 8123.1] NVRM: A GPU crash dump has been created. If possible, please run nvidia-bug-report.sh",
        counter_sample="[ 8123.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
    ),
    Rule(
        "gpu.sxid_other", "gpu_hardware",
        (b"SXid (",),
        rb"SXid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]+)\): (?P<xid>\d+), Non-fatal",
        "symptom", "node", 0.5,
        summary="NVSwitch {device}: SXid {xid}",
        explain="An NVSwitch reports a fault that it calls non-fatal.",
        do=_OUT,
        source="nvidia-nvswitch kernel driver", order=2,
        sample="nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 12028, Non-fatal, Link 44 egress non-posted PRIV error",
        counter_sample="nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    ),
    Rule(
        "kernel.device_gone", "gpu_hardware",
        (b"device inaccessible", b"Link Down", b"not ready", b"Card not present"),
        rb"(?:nvidia|amdgpu) [0-9a-f:.]+: Unable to change power state.{0,100}?device inaccessible|pciehp: "
        rb"Slot\(\S+\): (?:Link Down|Card not present)",
        "cause", "node", 0.78,
        summary="a card has left the PCIe bus",
        explain="The slot lost its link; the card does not answer.",
        do=_OUT,
        source="Linux, pciehp", order=2,
        sample="[ 812.1] pcieport 0000:3a:00.0: pciehp: Slot(12): Link Down",
        counter_sample="[ 812.1] pciehp: Slot(12): Link Up",
    ),
    Rule(
        "kernel.mlx5", "network",
        (b"mlx5_core",),
        rb"mlx5_core \S+ .{0,200}?(?:health recovery|NIC state is invalid|status limits exceeded|Cable error"
        rb"|Fatal error|Link down|not responding|timeout\. Will cause a leak)|mlx5_core \S+: "
        rb".{0,200}?(?:health recovery|Port module event\[error\])",
        "cause", "node", 0.7, action="exclude_and_restart",
        summary="the network card reports a fault",
        explain="Its firmware, cable or module fails.",
        do=_OUT,
        source="Linux, mlx5 driver", order=1,
        sample="[ 812.3] mlx5_core 0000:1a:00.0: Port module event[error]: module 0, Cable error, High Temperature",
        counter_sample="[ 812.3] mlx5_core 0000:1a:00.0 ens1f0: Link up",
    ),
    Rule(
        "kernel.netfs", "storage",
        (b"wekafs", b"beegfs", b"libceph", b"ceph: ", b"NFS: state manager", b"weka: "),
        rb"(?:wekafs|weka): .{0,200}?(?:timed out|unreachable|[Ee]rror|fail)|beegfs: .{0,200}?(?:Communication "
        rb"error|Remote I/O error|unreachable)|libceph: .{0,100}?(?:down|socket (?:closed|error)|timed? ?out)"
        rb"|ceph: mds\d+ (?:hung|caps stale|reconnect denied)|NFS: state manager: .{0,80}?(?:failed|error)",
        "cause", "node", 0.68,
        summary="a network file system's client has lost its server",
        explain="Reads and writes wait or fail until it is back.",
        do="Check the mount from that node and from another.",
        source="WekaFS, BeeGFS, Ceph and NFS clients", order=2,
        sample="[ 81.2] beegfs: enabling retries: Communication error: storage node 12",
        counter_sample="[ 81.2] beegfs: mounted",
    ),
    Rule(
        "kernel.dcgm_code", "gpu_hardware",
        (b"DCGM_FR_",),
        rb"DCGM_FR_(?P<what>\w+)",
        "cause", "node", 0.72,
        summary="a GPU check failed: {what}",
        explain="NVIDIA's data centre tool found a fault.",
        do=_OUT,
        source="DCGM", order=2,
        sample="GPU 4: DCGM_FR_PENDING_PAGE_RETIREMENTS", counter_sample="DCGM diag: Pass",
    ),
)

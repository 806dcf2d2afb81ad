"""Accelerators beside NVIDIA's: AMD (HSA, amdgpu), Habana, Ascend, TPU; and what health checks say of any of them."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_OUT = "Keep the node out and tell the admins."
_ASCEND = "Ascend CANN"

RULES = (
    Rule(
        "accel.amd_ras", "gpu_hardware", (b"ras_do_recovery", b"GPU recovery failed", b"xgmi: ", b"bad page threshold"),
        rb"amdgpu.{0,120}?(?:recovery failed|xgmi: .{0,60}?uncorrect|bad page threshold)|GPU recovery failed", "cause",
        "node", 0.88, summary="the GPU could not be brought back", explain="Its memory or link has failed.", do=_OUT,
        source="Linux, amdgpu",
        sample="[drm] amdgpu 0000:c1:00.0: amdgpu: GPU recovery failed: -110",
        counter_sample="amdgpu 0000:c1:00.0: amdgpu: recovery is on",
    ),
    Rule(
        "accel.habana_fatal", "gpu_hardware", (b"habanalabs ",),
        rb"habanalabs .{0,120}?(?:fatal error|hard-reset|unusable|failed to reset|Failed to reset|ECC (?:double|DERR))",
        "cause", "node", 0.88, summary="the Gaudi card reports a fatal error", explain="Its driver resets the card.",
        do=_OUT, source="Linux, habanalabs",
        sample="habanalabs 0000:19:00.0: hl5: Got HW fatal error event, going to hard-reset the device",
        counter_sample="habanalabs 0000:19:00.0: hl5: Successfully added device to the driver",
    ),
    Rule(
        "accel.ascend_heartbeat", "gpu_hardware",
        (b"heartbeat lost", b"heartbeat timeout", b"heartbeat is lost", b"retCode=507899", b"error code 507899"),
        rb"(?:device|chip)\b.{0,60}?heartbeat (?:is )?(?:lost|timeout)|(?:retCode=|error code )507899",
        "cause", "node", 0.8, summary="the card does not answer its driver", explain="Its heartbeat is lost.", do=_OUT,
        source=_ASCEND,
        sample="[ERROR] RUNTIME(772,python): device 4 heartbeat lost, retCode=507899",
        counter_sample="device 4 heartbeat is normal",
    ),
    Rule(
        "accel.ascend_memory", "cuda_oom", (b"EL0004",),
        rb"EL0004: .{0,60}?allocate memory", "cause", "rank", 0.85,
        summary="the NPU's memory is full", explain="The card could not allocate memory.", source=_ASCEND,
        sample="EL0004: Failed to allocate memory.",
        counter_sample="EL0003: The argument of the allocated memory is invalid.",
    ),
    Rule(
        "accel.ascend_notify", "hang", (b"EI0002", b"Notify register times out"),
        rb"EI0002\b|Notify register times out", "symptom", "rank", 0.7,
        summary="a collective of the NPUs timed out", explain="Another rank did not come: look for its own error.",
        source=_ASCEND + ", HCCL",
        sample="EI0002: The wait execution of the Notify register times out.",
        counter_sample="EI000: the notify register is set",
    ),
    Rule(
        "accel.ascend_init", "environment", (b"aclInit", b"aclrtSetDevice"),
        rb"(?:aclInit|aclrtSetDevice)\b.{0,60}?(?:error code|failed|ret)", "cause", "rank", 0.74,
        summary="the NPU's runtime cannot be started",
        explain="Driver, firmware and CANN do not fit, or it is not set up.",
        do="Compare npu-smi info with the CANN release; source set_env.sh.", source=_ASCEND,
        sample="RuntimeError: NPU function error: aclInit, error code is 500000",
        counter_sample="NPU function aclInit took 12 ms",
    ),
    Rule(
        "accel.tpu_in_use", "environment", (b"TPU is already in use", b"libtpu_lockfile"),
        rb"TPU is already in use by|libtpu_lockfile", "cause", "node", 0.78, action="restart",
        summary="another process holds the TPU",
        explain="A process of an earlier run was left over, or two run at once.",
        do="End the process that it names; remove /tmp/libtpu_lockfile.", source="JAX, libtpu", order=5,
        sample="RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with "
               "pid 4411.",
        counter_sample="backend 'tpu': the TPU is in use by this process with pid 4411",
    ),
    Rule(
        "accel.health_check", "gpu_hardware", (b"dcgm", b"health check"),
        rb"\bdcgm\w{0,8}\b.{0,120}?(?:[Ff]ailed|[Ff]ailure|[Uu]nhealthy)|GPU \d{1,2} (?:failed|did not pass) (?:the "
        rb"|its )?"
        rb"health check", "cause", "node", 0.8, summary="a GPU failed its health check: {line}",
        explain="A check before or beside the run found it wanting.", do=_OUT, source="DCGM; node health checks",
        sample="prolog: GPU 3 failed health check: PCIe replay count", counter_sample="GPU 3 passed its health check",
    ),
)

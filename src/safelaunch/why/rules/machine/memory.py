"""Host memory: the kernel's OOM killer, cgroups, refused allocations, unexplained kills."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_LESS = "Ask for more memory (--mem), or use less: fewer loader workers, no whole copy of the model per rank."

RULES = (
    Rule(
        "memory.kernel_oom", "host_oom",
        (b"Out of memory: Kill", b"cgroup out of memory", b"oom-kill:constraint", b"Out of memory (oom_kill"),
        rb"[Oo]ut of memory: Kill(?:ed)? process \d+ \((?P<process>[^)]{0,60})\)|oom-kill:constraint",
        "cause", "node", 0.93, summary="the kernel ended a process: host memory was exhausted",
        explain="The node or the job's cgroup had no memory left.", do=_LESS, source="Linux, mm/oom_kill.c", order=2,
        sample="Out of memory: Killed process 4242 (python) total-vm:812345kB, anon-rss:712345kB",
        counter_sample="Memory of process 4242 (python): total-vm:812345kB, anon-rss:712345kB",
    ),
    Rule(
        "memory.oom_killer", "host_oom", (b"invoked oom-killer",),
        rb"(?P<process>\S{1,60}) invoked oom-killer", "cause", "node", 0.76,
        summary="{process} called the kernel's OOM killer: host memory was exhausted",
        explain="The line below names the process that was ended, which may be another.", do=_LESS,
        source="Linux, mm/oom_kill.c", order=2,
        sample="[  510.7] python3 invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, "
               "oom_score_adj=0",
        counter_sample="oom-killer: not invoked",
    ),
    Rule(
        "memory.slurm_oom", "host_oom", (b"oom_kill event", b"oom-kill event"),
        rb"[Dd]etected (?P<count>\d+) oom[_-]kill event", "cause", "node", 0.95,
        summary="Slurm's cgroup ended a process: host memory was exhausted",
        explain="The step went over the job's memory on that node.", do=_LESS, source="slurmstepd, cgroup plugin",
        order=2,
        sample="slurmstepd: error: Detected 1 oom_kill event in StepId=811.0. Some of the step tasks have been OOM "
               "Killed.",
        counter_sample="no oom_kill event",
    ),
    Rule(
        "memory.slurm_task_oom", "host_oom", (b"Out Of Memory", b"OUT_OF_ME"),
        rb"(?:^|[\s:])(?:(?P<host>[\w.-]{1,80}): )?tasks? (?P<task>\d{1,7})[\d,\-]{0,300}: Out Of Memory|\bOUT_OF_ME",
        "cause", "node", 0.93, summary="task {task} on {host} was ended: host memory was exhausted",
        explain="srun saw that the OOM killer ended this task.", do=_LESS, source="srun, task exit report",
        host_group="host", rank_group="task", order=2,
        sample="srun: error: n3: task 5: Out Of Memory", counter_sample="task 5: memory is fine",
    ),
    Rule(
        "memory.slurm_limit", "host_oom",
        (b"exceeded memory limit", b"Exceeded job memory limit", b"Exceeded step memory limit", b"TERM_MEMLIMIT",
         b"exceeded virtual memory limit", b"PBS: job killed: "),
        rb"[Ee]xceeded (?:\w+ )?(?:virtual )?memory limit|TERM_MEMLIMIT|PBS: job killed: p?v?mem\b",
        "cause", "job", 0.9, summary="the job went over its memory limit",
        explain="The batch system ended it for that.", do=_LESS, source="slurmstepd, jobacct_gather; LSF",
        sample="slurmstepd: error: Step 811.0 exceeded memory limit (812345 > 712345), being killed",
        counter_sample="the memory limit is 64 GB",
    ),
    Rule(
        "memory.container_oom", "host_oom",
        (b"OOMKilled", b"low on resource: memory", b"killed due to the node running low on memory",
         b"killed due to memory pressure"),
        rb"OOMKilled|low on resource: memory|node running low on memory"
        rb"|[1-9]\d{0,5} Workers .{0,60}?killed due to memory pressure", "cause", "node", 0.9,
        summary="the container's or Ray's memory monitor ended a process",
        explain="The node or the pod ran out of memory.", do=_LESS, source="Kubernetes kubelet; Ray memory monitor",
        order=2,
        sample="Last State: Terminated, Reason: OOMKilled, Exit Code: 137",
        counter_sample="Last State: Terminated, Reason: Completed, Exit Code: 0, OOM score: 0",
    ),
    Rule(
        "memory.ray_oom", "host_oom", (b"ray.exceptions.OutOfMemoryError", b"OutOfMemoryError: Task was killed"),
        rb"ray\.exceptions\.OutOfMemoryError|OutOfMemoryError: Task was killed", "cause", "node", 0.9,
        summary="Ray ended a task: the node ran low on memory", explain="Ray's memory monitor chose this worker.",
        do=_LESS, source="Ray, memory monitor", order=4,
        sample="ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        counter_sample="ray: the node has 80 GB of memory, no task was killed",
    ),
    Rule(
        "memory.cpu_allocator", "host_oom", (b"DefaultCPUAllocator", b"Out of memory allocating "),
        rb"DefaultCPUAllocator: (?:can't allocate|not enough) memory|: Out of memory allocating \d+ bytes", "cause",
        "rank", 0.9, summary="the host refused an allocation of memory",
        explain="A tensor on the host did not fit into memory.", do=_LESS,
        source="PyTorch, c10/core/impl/alloc_cpu.cpp; XLA's CPU client", order=2,
        sample="RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
               "memory: you tried to allocate 8589934592 bytes.",
        counter_sample="DefaultCPUAllocator is in use",
    ),
    Rule(
        "memory.numpy", "host_oom", (b"_ArrayMemoryError", b"MemoryError: Unable to allocate"),
        rb"_ArrayMemoryError|MemoryError: Unable to allocate (?P<what>[^ ]+ \w+)", "cause", "rank", 0.85,
        summary="numpy could not allocate an array", explain="The array does not fit into host memory.", do=_LESS,
        source="numpy.core._exceptions", order=2,
        sample="numpy.core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape "
               "(100000, 100000)",
        counter_sample="allocate 74.5 GiB for an array",
    ),
    Rule(
        "memory.enomem", "host_oom", (b"Cannot allocate memory", b"std::bad_alloc", b"failed to allocate memory"),
        rb"\[Errno 12\] Cannot allocate memory|std::bad_alloc|fork: (?:retry: )?Cannot allocate memory"
        rb"|unable to mmap \d+ bytes.{0,300}?Cannot allocate memory", "cause", "rank", 0.75,
        summary="the host refused an allocation", explain="ENOMEM: memory, or the limit of mappings, is exhausted.",
        do=_LESS, source="errno(3); libstdc++", order=1,
        sample="OSError: [Errno 12] Cannot allocate memory",
        counter_sample="OSError: [Errno 11] Resource temporarily unavailable: memory allocated later",
    ),
    Rule(
        "memory.sigkill_elastic", "host_oom",
        (b"Exit code: -9", b"(SIGKILL) received by PID", b"exitcode: -9", b"return code = -9"),
        rb"Signal 9 \(SIGKILL\) received by PID|exitcode\s*: -9\b(?:.{0,80}?local_rank: (?P<local>\d+))?"
        rb"|[Ee]xit ?code:? -9\b|return code = -9\b", "cause",
        "rank", 0.55, summary="a rank was ended by SIGKILL, and nobody says why",
        explain="SIGKILL out of nowhere is most often the OOM killer; its line stands in the node's kernel log only.",
        do="Look at `dmesg -T | grep -i oom` on that node, or sacct's MaxRSS and OUT_OF_MEMORY state.",
        source="torchelastic and DeepSpeed launchers",
        sample="  traceback : Signal 9 (SIGKILL) received by PID 4242",
        counter_sample="Signal 15 (SIGTERM) received by PID 4242",
    ),
    Rule(
        "memory.bare_killed", "host_oom", (b"Killed",), rb"line \d+: +\d+ Killed\b|(?:^|[\]!.)])Killed(?:$| {2,})",
        "cause", "rank", 0.5, summary="the shell says Killed, and nobody says why",
        explain="SIGKILL out of nowhere is most often the OOM killer.",
        do="Look at the node's kernel log, or sacct's MaxRSS and state.", source="bash, job control",
        sample="/var/spool/job811/slurm_script: line 14:  4242 Killed                  python train.py",
        counter_sample="Killed workers: 0",
    ),
    Rule(
        "memory.srun_killed", "host_oom", (b": Killed",),
        rb"(?:^|[\s:])(?:(?P<host>[\w.-]{1,80}): )?tasks? (?P<task>\d{1,7})[\d,\-]{0,300}: Killed", "symptom", "rank",
        0.42, summary="task {task} on {host} was killed",
        explain="srun saw SIGKILL: the OOM killer, or srun's own end of the step.", source="srun, task exit report",
        host_group="host", rank_group="task",
        sample="srun: error: n3: tasks 0-3: Killed", counter_sample="srun: n3: tasks 0-3: Kill is pending",
    ),
    Rule(
        "memory.child_killed", "host_oom",
        (b"terminated with signal SIGKILL", b"was sent SIGKILL", b"terminated abruptly", b"TerminatedWorkerError"),
        b"terminated with signal SIGKILL|was sent SIGKILL|BrokenProcessPool|terminated abruptly|TerminatedWorkerError",
        "cause", "rank", 0.52, summary="a child process was killed, and nobody says why",
        explain="SIGKILL out of nowhere is most often the OOM killer.",
        do="Look at the node's kernel log; use fewer workers.",
        source="torch.multiprocessing; CPython, concurrent.futures; gunicorn; joblib", order=2,
        sample="torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
        counter_sample="process 0 terminated with signal SIGTERM",
    ),
    Rule(
        "memory.loader_killed", "host_oom", (b"is killed by signal: Killed",),
        b"DataLoader worker .{0,300}?is killed by signal: Killed", "cause", "rank", 0.75,
        summary="a data loader worker was killed",
        explain="SIGKILL of a worker is most often the OOM killer: each worker keeps a copy of what the data set "
                "holds.", do="Fewer workers, or less memory in the data set object.",
        source="PyTorch, torch/utils/data", order=2,
        sample="RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.",
        counter_sample="DataLoader worker (pid 4242) has begun",
    ),
    Rule(
        "memory.oom_reaper", "host_oom", (b"oom_reaper",), b"oom_reaper: reaped process", "context", "node", 0.6,
        summary="the kernel reclaimed a killed process's memory", explain="Follows an OOM kill.",
        source="Linux, mm/oom_kill.c",
        sample="oom_reaper: reaped process 4242 (python), now anon-rss:0kB",
        counter_sample="systemd reaped process 4242 (python), now anon-rss:0kB",
    ),
    Rule(
        "gpu.alloc_failed", "cuda_oom",
        (b"Failed to CUDA ", b"Failed to Cuda", b"cudaMallocAsync failed", b"cudaMalloc failed", b"hipMalloc failed",
         b"cuMemCreate", b"allocate GPU memory"),
        rb"Failed to C(?:UDA|uda) (?:host )?[cm]alloc\b|(?:cudaMalloc(?:Async)?|hipMalloc"
        rb"|cuMemCreate)\b.{0,100}?(?i:out of memory|failed)|allocate GPU memory", "cause", "rank", 0.74,
        summary="GPU memory is exhausted", explain="An allocation on the card was refused.",
        source="NCCL, include/alloc.h; CUDA", order=4,
        sample="n1:81:99 [0] include/alloc.h:205 NCCL WARN Failed to CUDA calloc async 4194304 bytes",
        counter_sample="cudaMalloc took 3 ms",
    ),
    Rule(
        "gpu.failure_oom", "cuda_oom", (b"Cuda failure",), rb"Cuda failure (?:\d+ )?'out of memory'",
        "cause", "rank", 0.86, summary="GPU memory is exhausted", explain="NCCL found no GPU memory for its buffers.",
        source="NCCL", order=5,
        sample="NCCL WARN Cuda failure 'out of memory'", counter_sample="NCCL WARN Cuda failure 'invalid argument'",
    ),
    Rule(
        "gpu.xla_alloc", "cuda_oom", (b"Failed to allocate ", b"ran out of memory trying to allocate"),
        rb"Allocator \(\S+\) ran out of memory trying to allocate|XlaRuntimeError: .{0,60}?Failed to allocate "
        rb"\d+ bytes",
        "cause", "rank", 0.66,
        summary="device memory is exhausted",
        explain="XLA or TensorFlow cannot place a tensor on the device.",
        source="XLA BFC allocator", order=2,
        sample="W bfc_allocator.cc:482] Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00GiB",
        counter_sample="Allocator (GPU_0_bfc) is used",
    ),
    Rule(
        "gpu.kv_cache", "cuda_oom",
        (b"KV cache is needed", b"than the available KV cache memory"),
        rb"KV cache is needed|than the available KV cache memory",
        "cause", "job", 0.74,
        summary="the model's context does not fit the cache memory",
        explain="The cache that is left is smaller than one sequence.",
        do="Smaller max_model_len, or more tensor parallelism.",
        source="vLLM", order=3,
        sample="ValueError: To serve at least one request, 16.00 GiB KV cache is needed, which is larger than what is "
               "free",
        counter_sample="GPU KV cache size: 81,000 tokens",
    ),
    Rule(
        "memory.arrow", "host_oom",
        (b"ArrowMemoryError", b"malloc of size"),
        rb"ArrowMemoryError|\bmalloc of size \d+ failed",
        "cause", "rank", 0.84,
        summary="the host refused an allocation",
        explain="Arrow found no memory for a table.",
        do=_LESS,
        source="Apache Arrow", order=4,
        sample="pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed",
        counter_sample="malloc of size 80 is fast",
    ),
    Rule(
        "memory.managers", "host_oom",
        (b"systemd-oomd", b"memory budget", b"exceeded its memory limit", b"exceeded memory limit"),
        rb"systemd-oomd.{0,20}?: Killed |Worker \S+ .{0,40}?exceeded \d+% memory budget|worker exceeded (?:its "
        rb")?memory limit",
        "cause", "node", 0.72,
        summary="a memory manager ended a process",
        explain="The service that watches memory ended it before the kernel had to.",
        do=_LESS,
        source="systemd-oomd; Dask", order=2,
        sample="systemd-oomd[811]: Killed /system.slice/job_81 due to memory pressure for /system.slice being 91.15% "
               "> 60.00%",
        counter_sample="systemd-oomd[811]: started",
    ),
)

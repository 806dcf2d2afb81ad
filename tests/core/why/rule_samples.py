"""Each rule's sample, a line as its software prints it, and a counter-sample: a line near it to be left alone.

Written for these tests from knowledge of the formats; no line is taken from anybody's log.
"""

from __future__ import annotations

TRACE = "Traceback (most recent call last):"

# id: (sample, counter-sample). A sample of several lines ends in the line that the rule has.
SAMPLES: dict[str, tuple[str, str]] = {
    # --- Slurm and other batch systems
    "slurm.time_limit": (
        "slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***",
        "the time limit of this job is 20 h",
    ),
    "slurm.preempted": (
        "slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO PREEMPTION ***",
        "partition scavenge allows preemption",
    ),
    "slurm.requeued": (
        "slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO JOB REQUEUE ***",
        "requeue is allowed for this job",
    ),
    "slurm.node_failure": ("srun: error: Node failure on n17", "no node failure was seen on n17"),
    "slurm.not_responding": (
        "slurmctld: error: Nodes n[3-4] not responding, setting DOWN",
        "nfs: server n3 not responding, still trying",
    ),
    "slurm.cancelled_node_failure": (
        "slurmstepd: error: *** STEP 811.0 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO NODE FAILURE, SEE "
        "SLURMCTLD LOG FOR DETAILS ***",
        "after a node failure the job is put back",
    ),
    "slurm.cancelled_signal": (
        "slurmstepd: error: *** STEP 811.1 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE to SIGNAL Terminated ***",
        "scancel sends SIGNAL Terminated",
    ),
    "slurm.job_cancelled": (
        "slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 ***",
        "slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***",
    ),
    "slurm.step_cancelled": (
        "slurmstepd: error: *** STEP 811.0 ON n3 CANCELLED AT 2025-01-02T03:04:05 ***",
        "slurmstepd: error: *** JOB 811 ON n3 CANCELLED AT 2025-01-02T03:04:05 ***",
    ),
    "slurm.forced": ("srun: forcing job termination", "srun does not like forcing of job termination"),
    "slurm.interrupt": ("srun: interrupt (one more within 1 sec to abort)", "the interrupt of srun is disabled"),
    "slurm.task_exit": ("srun: error: n3: task 5: Exited with exit code 1", "task 5 exited"),
    "slurm.task_signal": ("srun: error: n3: task 5: Segmentation fault (core dumped)", "task 5: no Segmentation"),
    "slurm.task_aborted": ("srun: error: n3: task 5: Aborted (core dumped)", "task 5 was Aborted"),
    "slurm.task_terminated": ("srun: error: n3: tasks 0-7: Terminated", "tasks 0-7 ran"),
    "slurm.step_teardown": (
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "the job step goes on",
    ),
    "slurm.memory_error": (
        "slurmstepd: error: *** STEP 811.0 ON n3 UNCORRECTABLE MEMORY ERROR AT 2025-01-02T03:04:05 ***",
        "no uncorrectable memory error was seen on n3",
    ),
    "slurm.launch_failed": (
        "srun: error: Task launch for StepId=811.0 failed on node n3: Communication connection failure",
        "task launch took 3 s on node n3",
    ),
    "slurm.comm": ("slurmstepd: error: Munge decode failed: Expired credential", "munge is running"),
    "slurm.controller": (
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm controller is ctl1",
    ),
    "slurm.refused": (
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        "Submitted batch job 811",
    ),
    "slurm.execve": ("slurmstepd: error: execve(): pythn: No such file or directory", "execve(): traced"),
    "slurm.chdir": (
        "slurmstepd: error: couldn't chdir to `/scratch/run': No such file or directory: going to /tmp instead",
        "chdir to /scratch/run",
    ),
    "slurm.cgroup_noise": ("slurmstepd: error: _get_joules_task: can't get info from slurmd", "joules: 812"),
    "batch.owner": ("TERM_OWNER: job killed by owner.", "the owner of the job is alice"),
    "batch.keyboard": (
        f"{TRACE}\n  File \"train.py\", line 3, in <module>\n    main()\nKeyboardInterrupt",
        "press Ctrl-C for a KeyboardInterrupt",
    ),
    "batch.terminated": (
        "/var/spool/slurmd/job811/slurm_script: line 12:  4242 Terminated              python train.py",
        "Terminated workers: 0",
    ),
    "batch.hangup": ("run.sh: line 3:  4242 Hangup                  python train.py", "Hangup is ignored here"),
    # --- GPUs
    "gpu.xid_hardware": (
        "[81.2] NVRM: Xid (PCI:0000:4e:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
        "[81.2] NVRM: Xid (PCI:0000:4e:00): 31, pid=4242, Ch 00000008, MMU Fault",
    ),
    "gpu.xid_doubtful": (
        "NVRM: Xid (PCI:0000:4e:00): 62, pid=4242, 2027(2d50) 00000000 00000000",
        "NVRM: Xid (PCI:0000:4e:00): 620",
    ),
    "gpu.xid_program": (
        "NVRM: Xid (PCI:0000:4e:00): 31, pid=4242, name=python, Ch 00000008, MMU Fault: ENGINE GRAPHICS",
        "NVRM: Xid (PCI:0000:4e:00): 79",
    ),
    "gpu.xid_aftermath": (
        "NVRM: Xid (PCI:0000:4e:00): 45, pid=4242, name=python, Ch 00000008",
        "NVRM: Xid (PCI:0000:4e:00): 48",
    ),
    "gpu.sxid_fatal": (
        "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 22013, Non-fatal, Link 27 DLREQ",
    ),
    "gpu.off_bus": ("NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.", "the bus of GPU 0"),
    "gpu.smi_lost": (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "NVIDIA-SMI 550.54",
    ),
    "gpu.ecc": (
        f"{TRACE}\n  File \"t.py\", line 1, in f\n    x()\n"
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "Volatile Uncorr. ECC: 0",
    ),
    "gpu.row_remap": ("nvidia-smi: Row remapping failure occurred on GPU 3", "Remapped rows: 0"),
    "gpu.nvlink": (
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        "NVLink is active on 18 links",
    ),
    "gpu.unknown_error": ("RuntimeError: CUDA error: unknown error", "CUDA error: invalid argument"),
    "gpu.none_detected": ("RuntimeError: No CUDA GPUs are available", "8 CUDA GPUs are available"),
    "gpu.busy": ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "the device is busy"),
    "gpu.fabric": (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        "the system is initialized",
    ),
    "gpu.launch_failure": ("RuntimeError: CUDA error: unspecified launch failure", "launch failure injection is off"),
    "gpu.illegal_access": (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "memory access is checked",
    ),
    "gpu.device_assert": (
        "RuntimeError: CUDA error: device-side assert triggered",
        "compile with TORCH_USE_CUDA_DSA to enable device-side assertions",
    ),
    "gpu.device_assert_line": (
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: "
        "[3,0,0] Assertion `t >= 0 && t < n_classes` failed.",
        "Assertion `x` holds",
    ),
    "gpu.bad_ordinal": ("RuntimeError: CUDA error: invalid device ordinal", "device ordinal 3"),
    "gpu.out_of_memory": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.11 GiB",
        "peak CUDA memory: 71 GiB",
    ),
    "gpu.bare_oom_error": (
        "jaxlib.OutOfMemoryError: device is full",
        "OutOfMemoryError is handled by halving the batch",
    ),
    "gpu.xla_oom": (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
        "17179869184 bytes.",
        "RESOURCE_EXHAUSTED: Quota exceeded for requests",
    ),
    "gpu.lib_alloc": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUBLAS_STATUS_SUCCESS",
    ),
    "gpu.cublas": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`",
        "cublasGemmEx took 3 ms",
    ),
    "gpu.cublas_init": ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "cuDNN is initialized"),
    "gpu.ecc_page_context": ("Pending page retirement: Yes; remapping pending", "Retired pages: 0"),
    "gpu.xid_other": (
        "NVRM: Xid (PCI:0000:4e:00): 250, pid=4242, an unknown one",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
    ),
    "gpu.rocm": ("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!", "amdgpu 0000:c1:00.0: amdgpu: ring gfx uses VM"),
    "gpu.hsa": (
        ":0:rocdevice.cpp:2660: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL "
        "operation",
        "HSA_STATUS_SUCCESS",
    ),
    "gpu.thermal": ("GPU 00000000:4E:00.0: HW Slowdown active", "HW Slowdown: Not Active"),
    # --- host memory
    "memory.kernel_oom": (
        "Out of memory: Killed process 4242 (python) total-vm:812345kB, anon-rss:712345kB",
        "memory: 3 GB free",
    ),
    "memory.slurm_oom": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=811.0. Some of the step tasks have been OOM Killed.",
        "no oom_kill event",
    ),
    "memory.slurm_task_oom": ("srun: error: n3: task 5: Out Of Memory", "task 5: memory is fine"),
    "memory.slurm_limit": (
        "slurmstepd: error: Step 811.0 exceeded memory limit (812345 > 712345), being killed",
        "the memory limit is 64 GB",
    ),
    "memory.container_oom": ("Last State: Terminated, Reason: OOMKilled, Exit Code: 137", "OOM score: 0"),
    "memory.ray_oom": (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "ray.init() took 3 s",
    ),
    "memory.cpu_allocator": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 8589934592 bytes.",
        "DefaultCPUAllocator is in use",
    ),
    "memory.numpy": (
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape (100000, "
        "100000)",
        "allocate 74.5 GiB for an array",
    ),
    "memory.python": (
        f"{TRACE}\n  File \"t.py\", line 1, in f\n    x()\nMemoryError",
        "except MemoryError is in place",
    ),
    "memory.enomem": ("OSError: [Errno 12] Cannot allocate memory", "[Errno 2]"),
    "memory.sigkill_elastic": (
        "  traceback : Signal 9 (SIGKILL) received by PID 4242",
        "Signal 15 (SIGTERM) received by PID 4242",
    ),
    "memory.bare_killed": (
        "/var/spool/job811/slurm_script: line 14:  4242 Killed                  python train.py",
        "Killed workers: 0",
    ),
    "memory.srun_killed": ("srun: error: n3: tasks 0-3: Killed", "tasks 0-3 ran"),
    "memory.loader_killed": (
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.",
        "DataLoader worker (pid 4242) has begun",
    ),
    "memory.oom_reaper": ("oom_reaper: reaped process 4242 (python), now anon-rss:0kB", "reaped 3 processes"),
    "memory.pinned": ("cudaHostAlloc of 2147483648 bytes failed", "pinned memory: 2 GB"),
    # --- networks
    "network.ib_completion": (
        "n3:4242:4300 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.1.2.3<41234> "
        "with status=12 opcode=129 len=0 vendor err 129",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
    ),
    "network.ib_async": (
        "n3:4242:4300 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        "NET/IB : mlx5_0:1 is active",
    ),
    "network.ib_call": (
        "n3:4242:4300 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        "ibv_devinfo lists mlx5_0",
    ),
    "network.nccl_connect": (
        "n3:4242:4300 [0] misc/socket.cc:538 NCCL WARN socketStartConnect: Connect to 10.1.2.3<41234> failed : "
        "Connection refused",
        "connect to 10.1.2.3<41234> succeeded",
    ),
    "network.nccl_peer_gone": (
        "n3:4242:4300 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n4<41234>",
        "NCCL has closed 3 channels",
    ),
    "network.nccl_remote": (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "no remote process",
    ),
    "network.nccl_system": (
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "the system call took 3 ms",
    ),
    "network.nccl_cuda": ("ncclUnhandledCudaError: Call to CUDA function failed.", "CUDA calls: 3"),
    "network.nccl_internal": ("ncclInternalError: Internal check failed.", "internal checks are on"),
    "network.nccl_duplicate_gpu": (
        "n3:4242:4300 [0] init.cc:900 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4e000",
        "rank 1 and rank 0 are on n3",
    ),
    "network.nccl_interface": (
        "n3:4242:4300 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
        "Bootstrap : Using ib0:10.1.2.3<0>",
    ),
    "network.nccl_shm": (
        "n3:4242:4300 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-x1 to 9637892 bytes",
        "/dev/shm is 64 GB",
    ),
    "network.nccl_version": (
        "n3:4242:4300 [0] bootstrap.cc:120 NCCL WARN Mismatched NCCL version detected : received 22304 expected 21805",
        "NCCL version 2.21.5+cuda12.4",
    ),
    "network.efa": (
        "n3:4242:4300 [0] nccl_net_ofi_rdma.c:800 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 113. "
        "Error: unreachable",
        "NET/OFI Selected Provider is efa",
    ),
    "network.cxi": (
        "libfabric:811:1701985650::cxi:mr:cxip_do_map():90<warn> nid001097: cxil_map() failed: -22",
        "libfabric:811:1701985650::cxi:core:cxip_getinfo():90<info> nid001097: found cxi0",
    ),
    "network.link_down": ("mlx5_core 0000:12:00.0 ib0: Link is Down", "ib0: link becomes ready"),
    "network.mlx5_health": (
        "mlx5_core 0000:12:00.0: device's health compromised - reached miss count",
        "mlx5_core 0000:12:00.0: firmware version: 20.35.1012",
    ),
    "network.ucx": (
        "[1735.1] [n3:4242 :0] ib_mlx5_log.c:171 UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB (synd "
        "0x15 vend 0x81)",
        "UCX  INFO retry count is 7",
    ),
    "network.ucx_cuda_context": (
        "cuda_ipc_md.c:246 UCX  ERROR cuCtxGetDevice(&dev) failed: invalid device context",
        "cuCtxGetDevice(&dev) succeeded",
    ),
    "network.gloo_closed": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[10.1.2.3]:41234",
        "the connection was closed by us",
    ),
    "network.gloo_mesh": (
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        "gloo connects its mesh",
    ),
    "network.unreachable": ("OSError: [Errno 113] No route to host", "the route to the host is known"),
    "network.refused": ("ConnectionRefusedError: [Errno 111] Connection refused", "the connection is up"),
    "network.ssh": ("ssh: connect to host n4 port 22: Connection refused", "ssh: connected to host n4"),
    "network.mpi_lost": ("ORTE has lost communication with a remote daemon.", "ORTE talks to its remote daemons"),
    "network.mpi_btl": ("[n3:4242] btl_tcp_endpoint.c:620 connect() to 10.1.2.3 failed", "btl_tcp is selected"),
    "network.nvshmem": ("/src/mem/mem.cpp:10: nvshmem setup connections failed", "nvshmem is initialized"),
    "network.dns": ("socket.gaierror: [Errno -2] Name or service not known", "the name of the service is known"),
    "network.store_refused": (
        "slurmstepd: error: mpi/pmix_v4: _errhandler: n3 [1]: pmixp_client_v2.c:211: Error handler invoked",
        "mpi/pmix_v4 is in use",
    ),
    # --- rendezvous, stores, watchdogs, launchers
    "rendezvous.port_taken": (
        "[c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "the address is in use by nobody",
    ),
    "rendezvous.client_timeout": (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
        "connect to (n0, 29500).",
        "The client socket has connected to (n0, 29500)",
    ),
    "rendezvous.client_failed": (
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [n0]:29500 (errno: 111 - Connection "
        "refused).",
        "The client socket is connected",
    ),
    "rendezvous.env_missing": (
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
        "expected, but not set",
        "environment variable RANK is set",
    ),
    "store.lost": (
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
        "failed. See inner exception for details.",
        "the C10d store is n0",
    ),
    "store.key_wait": (
        "RuntimeError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value "
        "store by store->get('0'), got error: Connection reset by peer",
        "store->get is fast",
    ),
    "hang.watchdog": (
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=600000) ran for 600812 milliseconds before timing out.",
        "the watchdog is on, its timeout 600 s",
    ),
    "hang.watchdog_stuck": (
        "[PG 0 Rank 3] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress in monitoring "
        "enqueued collectives.",
        "the watchdog makes progress",
    ),
    "hang.barrier": ("RuntimeError: Rank 3 failed to pass monitoredBarrier in 1800000 ms", "monitoredBarrier passed"),
    "hang.gloo_timeout": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 1800000ms "
        "for recv operation to complete",
        "waiting 3 ms for recv",
    ),
    "hang.desync": (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE, "
        "but Rank 1 is running collective: BROADCAST",
        "no mismatch between collectives",
    ),
    "hang.rccl_abort": ("[n3] NCCL timeout in broadcast of parameters", "NCCL timeout: 1800 s"),
    "hang.pyspy_refused": ("Error: Failed to suspend process", "process suspended"),
    "hang.xla_barrier": (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: step_100",
        "DEADLINE_EXCEEDED is retried",
    ),
    "hang.xla_peer": (
        "The following tasks are unhealthy (stopped sending heartbeats): /job:jax_worker/task:3",
        "all tasks are healthy and send heartbeats",
    ),
    "watchdog.consequence": (
        "To avoid data inconsistency, we are taking the entire process down.",
        "data are consistent",
    ),
    "elastic.child_failed": ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "no child failed"),
    "elastic.root_cause": ("Root Cause (first observed failure):", "Root Cause: unknown"),
    "elastic.rank_line": ("  rank      : 3 (local_rank: 3)", "rank 3 of 8"),
    "elastic.host_line": ("  host      : n3", "the host is n3"),
    "elastic.global_ranks": ("  global_ranks=[8, 9, 10, 11]", "  role_ranks=[8, 9, 10, 11]"),
    "elastic.failed": (
        "failed (exitcode: 1) local_rank: 3 (pid: 4242) of binary: /opt/env/bin/python",
        "failed (exitcode: -11) local_rank: 3 (pid: 4242)",
    ),
    "elastic.closing": ("Sending process 4242 closing signal SIGTERM", "closing the file"),
    "elastic.sighup": (
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 1",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 15",
    ),
    "elastic.sigint": (
        "Received Signals.SIGINT death signal, shutting down workers",
        "Received Signals.SIGTERM death signal, shutting down workers",
    ),
    "elastic.sigterm": (
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 15",
        "Process 4242 got a signal",
    ),
    "launcher.exit_status": (
        "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
        "returned exit status 0",
    ),
    "launcher.mpi_abort": ("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "MPI has 8 ranks"),
    "launcher.orte_start": ("ORTE was unable to reliably start one or more daemons.", "ORTE started its daemons"),
    "launcher.slots": (
        "There are not enough slots available in the system to satisfy the 8 slots that were requested",
        "8 slots are available",
    ),
    "ray.worker_died": (
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        "the actor has begun",
    ),
    "ray.task_error": (
        "ray.exceptions.RayTaskError(ValueError): ray::train() (pid=811, ip=10.0.0.7)",
        "a ray task raised no error",
    ),
    "ray.node_dead": (
        "The node with node id: 81ab and address: 10.1.2.3 has been marked dead because the detector has missed "
        "too many heartbeats from it.",
        "the node is alive",
    ),
    # --- native crashes
    "native.elastic_signal": (
        "  traceback : Signal 11 (SIGSEGV) received by PID 4242",
        "Signal 15 (SIGTERM) received by PID 4242",
    ),
    "native.elastic_code": (
        "failed (exitcode: -11) local_rank: 3 (pid: 4242) of binary: /opt/env/bin/python",
        "failed (exitcode: 1) local_rank: 3",
    ),
    "native.abort_code": (
        "failed (exitcode: -6) local_rank: 3 (pid: 4242) of binary: /opt/env/bin/python",
        "failed (exitcode: 6) local_rank: 3",
    ),
    "native.caught_signal": (
        "[n3:4242 :0:4300] Caught signal 11 (Segmentation fault: invalid permissions for mapped object at address "
        "0x7f)",
        "Caught signal handlers: 0",
    ),
    "native.faulthandler": ("Fatal Python error: Segmentation fault", "Python error: none is fatal"),
    "native.faulthandler_abort": ("Fatal Python error: Aborted", "Fatal Python error: Segmentation fault"),
    "native.shell": (
        "./run.sh: line 3:  4242 Segmentation fault      (core dumped) ./solver",
        "Segmentation fault handler installed",
    ),
    "native.kernel_segfault": (
        "python[4242]: segfault at 0 ip 00007f sp 00007f error 4 in libtorch_cpu.so[7f+8]",
        "sshd[4242]: segfault at 0 ip 00007f sp 00007f error 4 in sshd",
    ),
    "native.heap": ("double free or corruption (!prev)", "no double free was found"),
    "native.mpi_signal": (
        "mpirun noticed that process rank 3 with PID 4242 on node n3 exited on signal 11 (Segmentation fault).",
        "process rank 3 with PID 4242 on node n3 exited on signal 15 (Terminated).",
    ),
    "native.mpi_killed": (
        "mpirun noticed that process rank 3 with PID 4242 on node n3 exited on signal 9 (Killed).",
        "process rank 3 exited",
    ),
    "native.subprocess_signal": (
        "subprocess.CalledProcessError: Command '['./solver']' died with <Signals.SIGSEGV: 11>.",
        "Command died with <Signals.SIGTERM: 15>",
    ),
    "native.terminate": ("terminate called after throwing an instance of 'c10::Error'", "terminate was not called"),
    "native.what": (
        "  what():  vector::_M_range_check: __n (which is 8) >= this->size() (which is 8)",
        "what() is virtual",
    ),
    "native.check_failed": (
        "F0102 03:04:05.678901 4242 solver.cpp:80] Check failed: error == cudaSuccess (77 vs. 0)",
        "all checks passed, none Check failed",
    ),
    "native.assert": (
        "python: ../src/queue.c:811: push: Assertion `q->size < q->capacity' failed.",
        "all 12 assertions hold",
    ),
    "native.internal_assert": (
        "RuntimeError: r INTERNAL ASSERT FAILED at \"../aten/src/ATen/x.cpp\":80, please report a bug to PyTorch.",
        "INTERNAL ASSERT is on",
    ),
    "native.aborted": ("run.sh: line 3:  4242 Aborted                 (core dumped) ./solver", "Aborted uploads: 0"),
    "native.ptxas": ("LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32", "LLVM 17 is in use"),
    # --- installations
    "env.no_module": (
        f"{TRACE}\n  File \"t.py\", line 1, in <module>\n    import apex\nModuleNotFoundError: No module named 'apex'",
        "the module apex is found",
    ),
    "env.no_module_main": ("/usr/bin/python3: No module named torch.distributed.run", "python: 3 modules named so"),
    "env.cannot_import": (
        "ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.10/collections/__init__.py)",
        "import name from collections",
    ),
    "env.module_attribute": (
        "AttributeError: module 'torch' has no attribute 'compile'",
        "AttributeError: 'Model' object has no attribute 'compile'",
    ),
    "env.undefined_symbol": (
        "ImportError: /opt/env/lib/python3.10/site-packages/x_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        "the symbol is defined",
    ),
    "env.glibc": (
        "/opt/tool: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by /opt/tool)",
        "GLIBC_2.34 is there",
    ),
    "env.no_library": (
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
        "shared object file libcudnn.so.9 is open",
    ),
    "env.no_kernel_image": (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "the kernel image is 3 MB",
    ),
    "env.driver_old": (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "driver version 550.54",
    ),
    "env.torch_cpu": ("AssertionError: Torch not compiled with CUDA enabled", "Torch is compiled with CUDA 12.4"),
    "env.detected_versions": (
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch "
        "(12.1).",
        "detected CUDA version 12.4",
    ),
    "env.distribution": (
        "ImportError: tokenizers>=0.14,<0.19 is required for a normal functioning of this module, but found "
        "tokenizers==0.13.3.",
        "tokenizers==0.19 is found",
    ),
    "env.numpy_abi": (
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got "
        "88 from PyObject",
        "numpy.dtype is float32",
    ),
    "env.numpy_alias": (
        "AttributeError: module 'numpy' has no attribute 'bool'.",
        "AttributeError: module 'torch' has no attribute 'bool8'",
    ),
    "env.yaml_loader": (
        "TypeError: load() missing 1 required positional argument: 'Loader'",
        "TypeError: load() missing 1 required positional argument: 'path'",
    ),
    "env.protobuf": ("TypeError: Descriptors cannot be created directly.", "descriptors are created"),
    "env.extension_build": (
        "RuntimeError: Error building extension 'fused_adam'",
        "building extension fused_adam took 80 s",
    ),
    "env.pip": ("ERROR: No matching distribution found for flash-attn==9.9", "the distribution was found"),
    "env.command_not_found": (
        "/var/spool/slurmd/job811/slurm_script: line 9: torchrun: command not found",
        "the command was found",
    ),
    "env.module_load": (
        "Lmod has detected the following error: The following module(s) are unknown: \"cuda/99\"",
        "module cuda/12.4 is loaded",
    ),
    "env.conda": ("EnvironmentNameNotFound: Could not find conda environment: train", "conda environment: train"),
    "env.too_many_files": ("OSError: [Errno 24] Too many open files: '/data/x'", "open files: 80"),
    "env.threads": ("libgomp: Thread creation failed: Resource temporarily unavailable", "created 8 threads"),
    "env.mpi_builds": ("[n3:4242] OPAL ERROR: Unreachable in file ext3x_client.c at line 111", "OPAL is initialized"),
    "env.flash_attention": (
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        "FlashAttention is in use",
    ),
    "env.container": ("FATAL:   could not open image /images/train.sif: failed to retrieve path", "the image is open"),
    "env.license": ("License checkout failed: FlexNet error -15", "the licence was checked out"),
    "env.illegal_isa": (
        "run.sh: line 3:  4242 Illegal instruction     (core dumped) ./solver",
        "an illegal instruction is trapped",
    ),
    "env.invalid_context": (
        "Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: not there",
        "Loaded library libcudnn_cnn_infer.so.8",
    ),
    "env.unexpected_keyword": (
        "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokeniser'",
        "the keyword argument is known",
    ),
    # --- storage
    "storage.full": ("OSError: [Errno 28] No space left on device: '/tmp/x'", "space left on device: 80 GB"),
    "storage.quota": ("OSError: [Errno 122] Disk quota exceeded: '/home/u/x'", "quota: 80 of 100 GB"),
    "storage.stale": ("OSError: [Errno 116] Stale file handle: '/data/x'", "the file handle is fresh"),
    "storage.io_error": ("OSError: [Errno 5] Input/output error: '/data/x'", "input and output are fine"),
    "storage.read_only": ("OSError: [Errno 30] Read-only file system: '/data/x'", "mounted read-only for all"),
    "storage.endpoint": (
        "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/x'",
        "the endpoint is connected",
    ),
    "storage.hung_task": (
        "INFO: task python:4242 blocked for more than 120 seconds.",
        "task python:4242 ran for more than 120 seconds",
    ),
    "storage.nfs": ("nfs: server nas1 not responding, still trying", "nfs: server nas1 OK"),
    "storage.lustre": (
        "LustreError: 11-0: fs1-OST0003-osc: operation ost_write to node 10.1.2.3@o2ib failed: rc = -5",
        "Lustre: Mounted fs1-client",
    ),
    "storage.gpfs": ("mmfs: [E] The daemon lost quorum and will unmount", "mmfs: mounted gpfs1"),
    "storage.ext4": (
        "EXT4-fs error (device nvme0n1p2): ext4_lookup:1855: inode #81: deleted inode referenced",
        "EXT4-fs (nvme0n1p2): mounted filesystem",
    ),
    "storage.sqlite": ("sqlite3.OperationalError: database is locked", "the database is open"),
    "storage.git": (
        "fatal: loose object 81ab81ab81ab81ab (stored in .git/objects/81/ab) is corrupt",
        "3 loose objects",
    ),
    "storage.hdf5_lock": ("OSError: [Errno 37] No locks available", "locks: 3"),
    "storage.busy_nfs": (
        "OSError: [Errno 16] Device or resource busy: '/data/x/.nfs0000000081'",
        "Device or resource busy: '/dev/sda'",
    ),
    "storage.permission": ("PermissionError: [Errno 13] Permission denied: '/data/x'", "permission was given"),
    "storage.cuda_shm": ("cannot write /dev/shm/torch_81: No space", "/dev/shm: 64 GB"),
    # --- checkpoints
    "checkpoint.size_mismatch": (
        "\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 8]) from checkpoint, the "
        "shape in current model is torch.Size([12, 8]).",
        "the sizes match for head.weight",
    ),
    "checkpoint.state_dict": ("RuntimeError: Error(s) in loading state_dict for GPT:", "loading state_dict for GPT"),
    "checkpoint.damaged": (
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "PytorchStreamReader has read 3 records",
    ),
    "checkpoint.write_failed": (
        "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 8064 vs 7958",
        "position 8064",
    ),
    "checkpoint.unpickle": ("_pickle.UnpicklingError: invalid load key, 'v'.", "unpickling took 3 s"),
    "checkpoint.weights_only": (
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",
        "weights only: True",
    ),
    "checkpoint.ran_out": ("EOFError: Ran out of input", "EOFError: marker not found"),
    "checkpoint.no_weights": (
        "OSError: Error no file named pytorch_model.bin, model.safetensors found in directory /models/x.",
        "found model.safetensors in directory /models/x",
    ),
    "checkpoint.layout": (
        "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        "loaded state dict of the optimizer",
    ),
    "checkpoint.megatron_args": (
        "AssertionError: num_layers value from checkpoint (24) is not equal to the input argument value (32).",
        "num_layers value from checkpoint: 24",
    ),
    "checkpoint.no_file": (
        TRACE + "\n  File \"train.py\", line 7, in main\n    load()\n"
        "FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/iter_0000500/mp_rank_00/model.pt'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.json'",
    ),
    "checkpoint.from_scratch": (
        "    will not load any checkpoints and will start from random",
        "loading checkpoint from ckpt",
    ),
    "checkpoint.orbax": (
        "ValueError: user-provided restore item and on-disk checkpoint structure do not match (orbax)",
        "orbax saved step 80",
    ),
    "checkpoint.tensorflow": ("NotFoundError: Key dense/kernel not found in checkpoint", "all keys were found"),
    # --- data
    "data.loader_bus": (
        "RuntimeError: DataLoader worker (pid 87) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        "shared memory: 64 GB",
    ),
    "data.loader_died": (
        "RuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly",
        "DataLoader worker (pid 4242) has begun",
    ),
    "data.collate": (
        "RuntimeError: stack expects each tensor to be equal size, but got [3, 8] at entry 0 and [3, 9] at entry 1",
        "each tensor is of equal size",
    ),
    "data.image": ("PIL.UnidentifiedImageError: cannot identify image file '/data/81.jpg'", "identified 3 image files"),
    "data.archive": ("zipfile.BadZipFile: File is not a zip file", "the zip file is good"),
    "data.json": ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "decoded 3 JSON lines"),
    "data.table": (
        "pandas.errors.ParserError: Error tokenizing data. C error: Expected 5 fields in line 12, saw 7",
        "pandas reads 7 fields",
    ),
    "data.decode": (
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 3: invalid start byte",
        "decoded as utf-8",
    ),
    "data.arrow": ("pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.", "read 3 Parquet files"),
    "data.hf_dataset": (
        "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset",
        "generating the dataset",
    ),
    "data.dataset_name": (
        "ValueError: BuilderConfig 'en2' not found. Available: ['en']",
        "BuilderConfig 'en' is in use",
    ),
    "data.hdf5": (
        "OSError: Unable to synchronously open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = "
        "2048)",
        "opened the file",
    ),
    "data.empty": (
        "ValueError: num_samples should be a positive integer value, but got num_samples=0",
        "num_samples=80",
    ),
    "data.indexed": (
        "AssertionError: Index file doesn't match expected format. Make sure that --dataset-impl is configured "
        "properly.",
        "the index file matches",
    ),
    "data.tfrecord": (
        "tensorflow.python.framework.errors_impl.DataLossError: truncated record at 81920",
        "read 80 records",
    ),
    "data.video": ("[mov,mp4,m4a @ 0x55] moov atom not found", "the moov atom was found"),
    "data.embedding_index": ("IndexError: index out of range in self", "IndexError: list index out of range"),
    # --- numbers
    "numerical.loss_nan": ("step 800 | loss: nan | lr 1e-4", "step 800 | loss: 2.31 | aux: nan"),
    "numerical.stopping": ("Loss is nan, stopping training", "the loss is fine, so training goes on"),
    "numerical.loss_scale": (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "loss scale: 65536",
    ),
    "numerical.probability": (
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "the probability tensor sums to 1",
    ),
    "numerical.anomaly": (
        "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.",
        "Function 'SqrtBackward0' returned",
    ),
    "numerical.distribution": (
        "ValueError: Expected parameter loc (Tensor of shape (8,)) of distribution Normal(loc: torch.Size([8])) to "
        "satisfy the constraint Real(), but found invalid values:",
        "Expected parameter loc is real",
    ),
    "numerical.input_nan": ("ValueError: Input X contains NaN.", "Input X contains 8 columns"),
    "numerical.floating": ("numpy.linalg.LinAlgError: Singular matrix", "the matrix is regular"),
    "numerical.skipped": (
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "no overflow in 80 steps",
    ),
    "numerical.grad_nan": (
        " iteration 12/ 100 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 |",
        " iteration 12/ 100 | loss scale: 1.0 | grad norm: 0.8 | number of nan iterations:   0 |",
    ),
    "numerical.megatron": (
        " iteration 80/ 100 | lm loss: 2.0E+00 | number of skipped iterations:   0 | number of nan iterations:   3 |",
        " iteration 80/ 100 | number of nan iterations:   0 |",
    ),
    # --- hubs
    "hub.gated": ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", "the repo is open"),
    "hub.offline": (
        "OSError: We couldn't connect to 'https://huggingface.co' to load this file",
        "connected to the hub",
    ),
    "hub.not_a_model": (
        "OSError: ./models/x is not a local folder and is not a valid model identifier listed on the hub",
        "./models/x is a local folder",
    ),
    "hub.cache_race": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/cache/hub/blobs/81ab.incomplete'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/cache/x'",
    ),
    "hub.http_error": ("urllib.error.HTTPError: HTTP Error 403: Forbidden", "HTTP 200"),
    "hub.connection": (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.example.org', port=443): Max retries "
        "exceeded with url: /x",
        "the connection pool holds 3",
    ),
    "hub.wandb": (
        "wandb.errors.UsageError: api_key not configured (no-tty). call wandb login",
        "wandb: Syncing run calm-sun-8",
    ),
    "hub.tracker": (
        "mlflow.exceptions.MlflowException: API request to http://t:5000 failed with exception",
        "mlflow run 81ab",
    ),
    "hub.storage_client": ("botocore.exceptions.NoCredentialsError: Unable to locate credentials", "found credentials"),
    "hub.registry": (
        "docker: Error response from daemon: unauthorized: authentication required",
        "the registry needs no authentication",
    ),
    "hub.git": ("fatal: unable to access 'https://git.example.org/x/': Could not connect", "git fetch took 3 s"),
    # --- settings
    "config.srun": (
        "srun: unrecognized option '--container-image=pytorch.sqsh'",
        "srun: error: Unable to create step for job 811: Invalid generic resource (gres) specification",
    ),
    "config.arguments": ("train.py: error: unrecognized arguments: --batchsize 8", "the arguments are recognized"),
    "config.click": ("Error: No such option: --batchsize", "option --batch-size is set"),
    "config.hf_parser": (
        "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--x']",
        "HfArgumentParser took 8 arguments",
    ),
    "config.hydra": ("omegaconf.errors.ConfigAttributeError: Key 'lrr' is not in struct", "config key lr is set"),
    "config.yaml": ("yaml.scanner.ScannerError: mapping values are not allowed here", "read the YAML file"),
    "config.pydantic": (
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for TrainConfig",
        "validation: 2 files",
    ),
    "config.divisible": ("AssertionError: num_heads (30) must be divisible by tp_size (4)", "30 is divisible by 3"),
    "config.parallel_size": (
        "RuntimeError: world_size (4) is less than tensor_model_parallel_size 8",
        "world_size 8, parallel_size 8",
    ),
    "config.deepspeed_batch": (
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        "gradient_acc_step * world_size 32 != 2 * 1 * 8",
        "train_batch_size 32",
    ),
    "config.lightning": (
        "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
        "the configuration is fine",
    ),
    "config.hf_trainer": (
        "ValueError: FP16 Mixed precision training with AMP or APEX (`--fp16`) can only be used on CUDA devices",
        "fsdp is off",
    ),
    "config.vllm": (
        "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be "
        "stored in KV cache (8192).",
        "KV cache: 8192 tokens",
    ),
    "config.megatron": (
        "AssertionError: number of microbatches (3) is not what pipelining needs",
        "number of microbatches: 8",
    ),
    "config.dtype": (
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
        "bfloat16 is in use",
    ),
    "config.unsupported_value": ("ValueError: unknown optimizer adamx; should be one of adam, sgd", "ValueError: boom"),
    "config.script_missing": (
        "python: can't open file '/home/u/trian.py': [Errno 2] No such file or directory",
        "opened file '/home/u/train.py'",
    ),
    "config.no_such_file": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
        "/data/train.bin exists",
    ),
    "config.shell_no_file": (
        "run.sh: line 4: env.sh: No such file or directory",
        "No such file or directory is ignored",
    ),
    "config.torchrun_nproc": ("ValueError: Unsupported nproc_per_node value: gpus", "nproc_per_node: 8"),
    "config.kubernetes": ("Back-off pulling image \"train:9\": ImagePullBackOff", "pulled image train:8"),
    # --- signs of life, good ends, starts, noise
    "progress.megatron": (" iteration       80/     100 | consumed samples: 640 |", "iteration over the shards"),
    "progress.step_loss": ("step 80: loss 2.31", "the loss is computed at each step"),
    "progress.loss_dict": ("{'loss': 2.31, 'learning_rate': 0.0001, 'epoch': 0.8}", "{'loss': 'cross_entropy'}"),
    "progress.keras": ("80/100 [====>.....] - ETA: 3s - loss: 2.31 8ms/step", "80/100 shards"),
    "progress.bar": (
        "Training:  80%|########  | 80/100 [00:08<00:02, 10.0it/s]",
        "Loading checkpoint shards:  80%|####  | 8/10 [00:08<00:02, 1.0s/it]",
    ),
    "progress.epoch": ("Epoch [3/10], train acc: 0.81", "Epochs: 10"),
    "progress.epoch_alone": ("Epoch 3/10", "Epoch 3 is skipped"),
    "progress.mlperf": (
        ":::MLLOG {\"namespace\": \"\", \"event_type\": \"INTERVAL_END\", \"key\": \"epoch_stop\", \"value\": null}",
        ":::MLLOG {\"key\": \"submission_org\"}",
    ),
    "progress.deepspeed": ("[Rank 0] step=80, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]", "[engine] step=big"),
    "progress.saved": ("  successfully saved checkpoint at iteration 80 to ckpt", "saving is switched off"),
    "progress.throughput": ("step 80 done, 1234 tokens/s", "tokens/second are measured"),
    "done.hf": ("{'train_runtime': 81.2, 'train_samples_per_second': 8.1}", "training is slow"),
    "done.yolo": ("10 epochs completed in 0.132 hours.", "10 epochs are planned, 0.5 hours each"),
    "done.lightning": ("`Trainer.fit` stopped: `max_epochs=10` reached.", "`Trainer.fit` begins"),
    "done.words": ("Training finished.", "training is going to end"),
    "done.megatron": ("[after training is done] datetime: 2025-01-02 03:04:05", "[before the start of training step]"),
    "done.nccl_tests": ("# Collective test concluded: all_reduce_perf", "# Collective test starting: all_reduce_perf"),
    "done.mlperf": (
        ":::MLLOG {\"event_type\": \"INTERVAL_END\", \"key\": \"run_stop\", \"metadata\": {\"status\": \"success\"}}",
        ":::MLLOG {\"key\": \"run_stop\", \"metadata\": {\"status\": \"aborted\"}}",
    ),
    "done.slurm": ("Job 811 exited with exit code 0", "Job 811 exited with exit code 1"),
    "launch.torchrun": (
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
        "OMP_NUM_THREADS is 8",
    ),
    "launch.elastic_restart": (
        "[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
        "worker group is healthy",
    ),
    "launch.megatron": (
        "using world size: 8, data-parallel-size: 8, tensor-model-parallel size: 1",
        "the world size is known",
    ),
    "launch.deepspeed": (
        "[2025-01-02 03:04:05,678] [INFO] [launch.py:138:main] WORLD INFO DICT: {'n3': [0, 1]}",
        "[INFO] [launch.py:138:main] nnodes=1",
    ),
    "noise.tensorflow": (
        "Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already "
        "been registered",
        "registered the factory",
    ),
    "noise.python_warning": ("/opt/env/lib/x.py:81: FutureWarning: `old` is deprecated", "no warning"),
    "noise.ucx_debug": (
        "[1735.2] [n3:4242 :0] ib_device.c:80   UCX  DEBUG failed to read /sys/class/infiniband",
        "UCX  ERROR failed",
    ),
    "noise.nccl_info": ("n3:4242:4300 [0] NCCL INFO Channel 00/04 : 0 1", "NCCL WARN something"),
    "noise.leaks": (
        "resource_tracker: There appear to be 8 leaked semaphore objects to clean up at shutdown",
        "no semaphore leaked",
    ),
    "noise.libs": ("WARNING: No preset parameters were found for the device that Open MPI", "presets were found"),
    "noise.logging": ("--- Logging error ---", "logging is on"),
    "noise.retry": ("upload failed, retrying in 5 s", "no retry is needed"),
    "noise.error_metric": ("val mean_absolute_error: 0.31", "an error of the mean"),
    # --- the node
    "kernel.panic": ("Kernel panic - not syncing: Fatal exception in interrupt", "the kernel does not panic"),
    "kernel.mce": ("mce: [Hardware Error]: Machine check events logged", "no hardware errors"),
    "kernel.edac_ue": (
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        "EDAC MC0: Giving out device to module",
    ),
    "kernel.edac_ce": (
        "EDAC MC0: 3 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        "EDAC MC0: 1 UE memory read error",
    ),
    "kernel.aer_fatal": (
        "pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "PCIe Bus Error: severity=Corrected, type=Data Link Layer",
    ),
    "kernel.lockup": ("watchdog: BUG: soft lockup - CPU#8 stuck for 22s! [python:4242]", "soft lockup detector is on"),
    "kernel.thermal": ("thermal thermal_zone0: critical temperature reached, shutting down", "the temperature is 60 C"),
    "kernel.reboot": ("reboot: Restarting system", "a reboot is planned"),
    "kernel.gpu_probe": ("NVRM: GPU 0000:4e:00.0: RmInitAdapter failed! (0x26:0x56:1474)", "NVRM: loading the module"),
    "kernel.nvidia_modeset": (
        "nvidia-fabricmanager[812]: fabricmanager failed to start",
        "nvidia-fabricmanager[812]: started",
    ),
    "kernel.nvidia_smi_errors": ("Failed to initialize NVML: Unknown Error", "NVML is initialized"),
    "kernel.dcgm": ("dcgmi diag: Memory ...... Fail", "dcgmi diag: Memory ...... Pass"),
    # --- servers
    "serving.wrapper": (
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "the engine core is up",
    ),
    "serving.sglang_wrapper": (
        "Received sigquit from a child process. It usually means the child failed.",
        "the child process is up",
    ),
    "serving.sglang_memory": (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "memory is enough",
    ),
    "serving.graph_capture": (
        "Exception: Capture cuda graph failed: something in the kernel",
        "captured cuda graphs in 8 s",
    ),
    "serving.custom_allreduce": (
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:368 'invalid argument'",
        "custom allreduce is on",
    ),
    "serving.watchdog": ("Watchdog timeout (self.watchdog_timeout=300)", "the watchdog is on"),
    "serving.unsupported_model": (
        "ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
        "Model architectures ['LlamaForCausalLM']",
    ),
    "serving.weights_unknown": (
        "ValueError: There is no module or parameter named 'lm_head.qweight' in LlamaForCausalLM",
        "there are 8 modules",
    ),
    # --- frameworks
    "ddp.unused": (
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        "finished the reduction",
    ),
    "ddp.shapes": (
        "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 80 params, while rank 1 has "
        "inconsistent 81 params.",
        "DDP wraps the model",
    ),
    "torch.device_mismatch": (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "all on one device",
    ),
    "torch.shape": ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x16 and 32x8)", "shapes: 8x16 and 16x8"),
    "torch.autograd": (
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [torch.cuda.FloatTensor [8]]",
        "gradients are computed",
    ),
    "torch.not_initialized": (
        "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
        "the process group is initialized",
    ),
    "torch.pickle": ("AttributeError: Can't pickle local object 'main.<locals>.collate'", "pickled 8 objects"),
    "torch.fork": (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
        "use the 'spawn' start method",
        "CUDA is initialized",
    ),
    "torch.compile": ("torch._dynamo.exc.Unsupported: call_function BuiltinVariable(print)", "torch.compile took 80 s"),
    "triton.compile": (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224, Hardware limit: "
        "101376.",
        "triton compiled 8 kernels",
    ),
    "fsdp.flatten": (
        "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
        "flattened tensors",
    ),
    "deepspeed.op": (
        "RuntimeError: Unable to JIT load the fused_adam op due to it not being compatible due to "
        "hardware/software issue.",
        "loaded the fused_adam op",
    ),
    "deepspeed.zero3": ("AttributeError: 'Parameter' object has no attribute 'ds_shape'", "ds_id 8"),
    "megatron.index": ("AssertionError: global batch size (30) is not what the rampup needs", "global batch size: 32"),
    "tokenizer.missing": (
        "ValueError: Couldn't instantiate the backend tokenizer from one of: a tokenizers library serialization file",
        "the tokenizer is there",
    ),
    "tokenizer.pad": (
        "ValueError: Asking to pad but the tokenizer does not have a padding token.",
        "the padding token is 0",
    ),
    "hf.remote_code": (
        "ValueError: Loading /models/x requires you to execute the configuration file in that repo; set "
        "trust_remote_code=True",
        "trust_remote_code=True is set",
    ),
    "hf.architecture": (
        "ValueError: The checkpoint you are trying to load has model type `foo` but Transformers does not "
        "recognize this architecture.",
        "the architecture is llama",
    ),
    "hf.accelerate_env": ("ValueError: You need to run accelerate config first", "accelerate config is read"),
    "lightning.devices": (
        "lightning.fabric.utilities.exceptions.ConfigError: You requested gpu: [4] But your machine only has: [0, 1]",
        "your machine has 8 GPUs",
    ),
    "jax.distributed": (
        "RuntimeError: Unable to initialize backend 'cuda': INTERNAL: no card answers",
        "initialized backend 'cuda'",
    ),
    "jax.cudnn": (
        "Loaded runtime CuDNN library: 8.5.0 but source was compiled with: 8.6.0.",
        "Loaded runtime CuDNN library 8.6",
    ),
    "jax.nccl": (
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: NCCL operation ncclGroupEnd() failed: something",
        "the NCCL operation took 8 ms",
    ),
    "tf.graph": (
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:",
        "the graph is executed",
    ),
    "env.ssh_key": ("alice@n7: Permission denied (publickey,password).", "the public key was taken"),
    "env.interpreter": ("/usr/bin/env: 'python': No such file or directory", "/usr/bin/env: python is there"),
    "env.header": ("x.cu:3:10: fatal error: cublas_v2.h: No such file or directory", "compiled x.cu"),
    "gpu.other_error": ("RuntimeError: HIP error: operation not supported", "no CUDA errors"),
    "network.mpi_error": (
        "Abort(1) on node 3: Fatal error in PMPI_Init: Other MPI error, error stack:",
        "MPI_Init took 3 s",
    ),
    "network.nccl_warn": (
        "n3:4242:4300 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 1024 bytes instead of 256",
        "NCCL INFO all is well",
    ),
    "slurm.stuck": (
        "slurmstepd: error: *** JOB 811 STEPD TERMINATED ON n3 AT 2025-01-02T03:04:05 DUE TO JOB NOT ENDING WITH "
        "SIGNALS ***",
        "the job ends with signals",
    ),
    "slurm.options": ("srun: error: CPU count per node can not be satisfied", "srun: error: something else"),
    "slurm.spank": ("slurmstepd: error: Failed to invoke spank plugin stack", "spank plugins: 3"),
    "data.loader_signal": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "no unexpected signal was encountered in worker 3",
    ),
    "data.loader_timeout": ("RuntimeError: DataLoader timed out after 600 seconds", "the DataLoader took 600 seconds"),
    "data.lmdb": ("lmdb.Error: /data/train.lmdb: No such file or directory", "lmdb is open"),
    "memory.child_killed": (
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
        "process 0 terminated with signal SIGTERM",
    ),
    "batch.cloud_preempted": (
        "Spot instance interruption notice received, terminating at 2026-01-02T03:04:05Z",
        "this job runs on a spot instance",
    ),
    "slurm.lightning_requeue": ("Handling auto-requeue signal: 10", "the auto-requeue is on"),
    "hang.xla_rendezvous": (
        "This thread has been waiting for `initialize clique for rank 6` for 10 seconds and may be stuck.",
        "the thread waits for the clique",
    ),
    "hang.slow_loading": (
        "ValueError: TP rank 1 could finish the model loading, but there are other ranks that didn't finish loading.",
        "TP rank 1 has loaded the model",
    ),
    "batch.revoked": ("salloc: Job allocation 811 has been revoked.", "job allocation 811 was granted"),
    "hang.no_progress": ("Watchdog: no progress in 30 minutes, dumping stacks", "progress: 30 %"),
    # --- any program
    "python.exception": (
        f"{TRACE}\n  File \"t.py\", line 3, in f\n    g()\nmypackage.errors.Strange: no such thing",
        "mypackage.errors.strange thing",
    ),
    "python.line": ("mypackage.StrangeError: no such thing", "an error: no such thing"),
    "python.error_word": ("ERROR - the solver gave up", "no errors"),
    "native.stack": (
        "#1  0x000014753985ae05 in abort () from /lib64/libc.so.6",
        "the call to std::terminate() is allowed in abort handlers",
    ),
    "memory.java_heap": (
        "Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space",
        "java.lang.OutOfMemoryError was never seen",
    ),
    "memory.oom_killer": (
        "[  510.7] python3 invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
        "oom-killer: not invoked",
    ),
    "rendezvous.xla_connect": (
        "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:",
        "PjRT_Client_Connect: all tasks are there",
    ),
    "gpu.no_peer_access": (
        "gpu-vm:47:47 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these "
        "two devices'",
        "peer access is supported between these two devices",
    ),
    "hydra.failed": (
        "[2025-10-31 05:07:11,062][__main__][ERROR] - Error executing job with overrides: ['train.epochs=100']",
        "executing job with overrides: ['train.epochs=100']",
    ),
    "storage.short_write": (
        "[16:24:41] src/io/local_filesys.cc:39: Check failed: std::fwrite(ptr, 1, size, fp_) == size FileStream.Write "
        "incomplete",
        "short writes are batched",
    ),
    "gpu.other_driver_word": (
        "[ 8123.1] NVRM: A GPU crash dump has been created. If possible, please run nvidia-bug-report.sh",
        "[ 8123.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
    ),
    "gpu.sxid_other": (
        "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 12028, Non-fatal, Link 44 egress non-posted PRIV error",
        "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    ),
    "kernel.device_gone": (
        "[ 812.1] pcieport 0000:3a:00.0: pciehp: Slot(12): Link Down",
        "[ 812.1] pciehp: Slot(12): Link Up",
    ),
    "kernel.mlx5": (
        "[ 812.3] mlx5_core 0000:1a:00.0: Port module event[error]: module 0, Cable error, High Temperature",
        "[ 812.3] mlx5_core 0000:1a:00.0 ens1f0: Link up",
    ),
    "kernel.netfs": (
        "[ 81.2] beegfs: enabling retries: Communication error: storage node 12",
        "[ 81.2] beegfs: mounted",
    ),
    "kernel.dcgm_code": (
        "GPU 4: DCGM_FR_PENDING_PAGE_RETIREMENTS",
        "DCGM diag: Pass",
    ),
    "gpu.alloc_failed": (
        "n1:81:99 [0] include/alloc.h:205 NCCL WARN Failed to CUDA calloc async 4194304 bytes",
        "cudaMalloc took 3 ms",
    ),
    "gpu.failure_oom": (
        "NCCL WARN Cuda failure 'out of memory'",
        "NCCL WARN Cuda failure 'invalid argument'",
    ),
    "gpu.xla_alloc": (
        "W bfc_allocator.cc:482] Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00GiB",
        "Allocator (GPU_0_bfc) is used",
    ),
    "gpu.kv_cache": (
        "ValueError: To serve at least one request, 16.00 GiB KV cache is needed, which is larger than what "
        "is free",
        "GPU KV cache size: 81,000 tokens",
    ),
    "memory.arrow": (
        "pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed",
        "malloc of size 80 is fast",
    ),
    "memory.managers": (
        "systemd-oomd[811]: Killed /system.slice/job_81 due to memory pressure for /system.slice being "
        "91.15% > 60.00%",
        "systemd-oomd[811]: started",
    ),
    "memory.pin_refused": (
        "RuntimeError: cudaHostRegister failed, cannot pin memory",
        "cudaHostRegister took 3 ms",
    ),
    "network.ucx_register": (
        "[n3:811 :0] uct_md.c:98 UCX  ERROR failed to register address 0x7f (host) length 8192 on "
        "md[4]=mlx5_0: Input/output error",
        "UCX  INFO registered address",
    ),
    "network.mpi_tcp": (
        "A process or daemon was unable to complete a TCP connection to another process:",
        "a TCP connection to another process was made",
    ),
    "network.aborted": (
        "urllib3.exceptions.ProtocolError: ('Connection aborted.', RemoteDisconnected('Remote end closed "
        "connection without response'))",
        "Connection aborted by the user",
    ),
    "slurm.node_words": (
        "slurmctld: error: Prolog launch failure, JobId=81",
        "the prolog is ready",
    ),
    "slurm.step_wait": (
        "srun: error: Timed out waiting for job step to complete",
        "job step is complete",
    ),
    "slurm.preempt_words": (
        "slurmctld: preempted JobId=81 has been requeued to reclaim resources for JobId=82",
        "the job may be preempted",
    ),
    "slurm.limit_words": (
        "qmaster: job 81 exceeded hard wallclock time h_rt",
        "the wallclock time of this job",
    ),
    "slurm.scancel_words": (
        "scancel: Signal 15 to batch job 81",
        "use scancel: it ends a job",
    ),
    "ray.node_died": (
        "ray.exceptions.NodeDiedError: Task was killed because the node it was running on has died",
        "the node it was running on is healthy",
    ),
    "ssh.closed": (
        "Connection to n14 closed by remote host.",
        "closed by remote hosts",
    ),
    "hang.words": (
        "[WARN] no step logged for 1800 s; killing the job (hang detected)",
        "no hang was detected",
    ),
    "rendezvous.store_barrier": (
        "RuntimeError: Port 8476 is already in use",
        "port 8476 is in use",
    ),
    "storage.timed_out": (
        "OSError: [Errno 110] Connection timed out: '/lustre/data/part-003.bin'",
        "[Errno 110] Connection timed out",
    ),
    "storage.parent": (
        "RuntimeError: Parent directory /scratch/ckpt does not exist.",
        "Parent directory: /scratch",
    ),
    "storage.object_store": (
        "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.example: Service Unavailable",
        "import google.api_core.exceptions",
    ),
    "storage.locks": (
        "filelock._error.Timeout: The file lock '/home/u/x.lock' could not be acquired.",
        "the file lock was taken",
    ),
    "ckpt.dcp": (
        "ValueError: Size mismatch between saved torch.Size([32000]) and current: torch.Size([32064]) for "
        "embed",
        "sizes saved and current match",
    ),
    "ckpt.absent": (
        "FileNotFoundError: Checkpoint at /ckpt/last.ckpt not found. Aborting training.",
        "no checkpoint found in /ckpt, starting from scratch",
    ),
    "ckpt.optimizer_key": (
        "KeyError: 'optimizer_states'",
        "KeyError: 'name'",
    ),
    "ckpt.args": (
        "AssertionError: expected checkpoint args num_layers = 24, got 32 from the checkpoint",
        "using args from the checkpoint",
    ),
    "data.codecs": (
        "libpng error: IDAT: CRC error",
        "import cv2, DALI",
    ),
    "data.index_files": (
        "AssertionError: Could not find index file /data/corpus_text_document.idx",
        "reading index file /data/corpus_text_document.idx",
    ),
    "data.tables": (
        "OSError: Couldn't deserialize thrift: TProtocolException: Invalid data",
        "CastError is raised for other columns",
    ),
    "data.samples": (
        "ValueError: cannot reshape array of size 811 into shape (3,224,224)",
        "skipped 3 bad samples",
    ),
    "data.tokenizer_file": (
        "RuntimeError: Internal: src/sentencepiece_processor.cc(1101) "
        "[model_proto->ParseFromArray(serialized.data())]",
        "sentencepiece_processor is loaded",
    ),
    "data.mmap_shm": (
        "OSError: unable to mmap 8192 bytes from file </torch_811_22>: Cannot allocate memory (12)",
        "mmap 8192 bytes from file x.bin",
    ),
    "numerical.words": (
        "RuntimeError: Detected nan in gradient of layer 12",
        "skipping a step: inf in the gradients",
    ),
    "hub.words": (
        "mlflow.exceptions.RestException: PERMISSION_DENIED: token expired",
        "CAS service is up",
    ),
    "env.python_home": (
        "Fatal Python error: init_fs_encoding: failed to get the Python codec",
        "Fatal Python error: Aborted",
    ),
    "env.compiler": (
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable",
        "the C compiler is gcc 12",
    ),
    "env.cudnn": (
        "RuntimeError: GET was unable to find an engine to execute this computation",
        "cudnn found an engine",
    ),
    "env.container_start": (
        "OCI runtime create failed: runc create failed: unable to start container process",
        "OCI runtime is runc",
    ),
    "env.conda_shell": (
        "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.",
        "conda activate base",
    ),
    "env.pmix": (
        "srun: error: cannot create mpi context for mpi/pmix",
        "srun --mpi=pmix",
    ),
    "env.operators": (
        "RuntimeError: operator torchvision::nms does not exist",
        "operator + is defined",
    ),
    "env.jax_devices": (
        "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: No visible GPU devices.",
        "8 visible GPU devices",
    ),
    "config.multiple": (
        "AssertionError: batch size 100 must be a multiple of data parallel size 8",
        "sizes should be a multiple of 8 for speed",
    ),
    "config.needs": (
        "AssertionError: --sequence-parallel requires --tensor-model-parallel-size > 1",
        "--sequence-parallel requires care",
    ),
    "config.env_key": (
        "KeyError: 'LOCAL_RANK'",
        "KeyError: 'rank'",
    ),
    # --- accelerators beside NVIDIA's
    "accel.hsa_resources": (
        "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources.",
        "HSA_STATUS_SUCCESS: resources were allocated",
    ),
    "accel.amd_ras": (
        "[drm] amdgpu 0000:c1:00.0: amdgpu: GPU recovery failed: -110", "amdgpu 0000:c1:00.0: amdgpu: recovery is on",
    ),
    "accel.habana_fatal": (
        "habanalabs 0000:19:00.0: hl5: Got HW fatal error event, going to hard-reset the device",
        "habanalabs 0000:19:00.0: hl5: Successfully added device to the driver",
    ),
    "accel.ascend_heartbeat": (
        "[ERROR] RUNTIME(772,python): device 4 heartbeat lost, retCode=507899", "device 4 heartbeat is normal",
    ),
    "accel.ascend_core": (
        "rtStreamSynchronize execute failed, reason=[aicore exception]", "aicore utilization is 97 %",
    ),
    "accel.ascend_memory": (
        "EL0004: Failed to allocate memory.", "EL0003: The argument is invalid.",
    ),
    "accel.ascend_notify": (
        "EI0002: The wait execution of the Notify register times out.", "EI000: the notify register is set",
    ),
    "accel.ascend_socket": (
        "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.",
        "getting sockets took 2 s",
    ),
    "accel.ascend_init": (
        "RuntimeError: NPU function error: aclInit, error code is 500000", "aclInit took 12 ms",
    ),
    "accel.tpu_in_use": (
        "RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid "
        "4411.",
        "the TPU is in use by this process",
    ),
    "accel.health_check": (
        "prolog: GPU 3 failed health check: PCIe replay count", "GPU 3 passed its health check",
    ),
    # --- fabrics
    "fabric.efa_completion": (
        "libfabric:7712:efa:cq:efa_rdm_cq_handle_error():210<warn> err: 113, message: Unreachable remote",
        "libfabric:7712:efa:cq:efa_rdm_cq_open():80<info> opened",
    ),
    "fabric.queue_pair": (
        "mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:803: CREATE_QP(0x500) op_mod(0x0) failed, status bad resource "
        "state(0x9)",
        "the process can create a queue pair",
    ),
    "fabric.ucx_resources": (
        "ib_iface.c:1208 UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory",
        "ib_iface.c:1208 UCX  INFO ibv_create_cq(cqe=4096)",
    ),
    "fabric.cxi": (
        "TXC (0x1a2:3): Fatal: TXC RDZV PtlTE event: PTL_NACK_RETRY_EXHAUSTED", "cxi0: link is up at 200 Gb/s",
    ),
    "fabric.ofi_failed": (
        "OFI endpoint creation failed (ofi_init.c:712): No data available", "OFI endpoint made (ofi_init.c:712)",
    ),
    "fabric.transmit_timeout": (
        "NETDEV WATCHDOG: eth0 (ice): transmit queue 12 timed out 5012 ms", "NETDEV WATCHDOG: disabled",
    ),
    "fabric.bond": (
        "bond0: (slave eth2): link status definitely down, disabling slave",
        "bond0: (slave eth2): link status definitely up",
    ),
    # --- nodes, as their daemons and clouds speak of them
    "nodes.prolog": ("slurmd: error: Prolog: exit status 1:0", "slurmd: Prolog: exit status 0:0"),
    "nodes.no_address": (
        "srun: error: fwd_tree_thread: can't find address for host n7, check slurm.conf",
        "the address for host n7 is known",
    ),
    "nodes.munge": (
        'slurmstepd: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or '
        "directory",
        "munge encode took 2 ms",
    ),
    "nodes.going_down": ("The system is going down for reboot NOW!", "The system is going well"),
    "nodes.maintenance": (
        "compute: the instance is subject to TERMINATE_ON_HOST_MAINTENANCE", "the job waits for a higher-priority job",
    ),
    "nodes.no_answer": (
        "srun: error: slurm_receive_msgs: [[n7]:6818] failed: Socket timed out on send/recv operation",
        "slurm_receive_msgs: [[n7]:6818] answered",
    ),
    "nodes.gpfs": (
        "mmfs: [N] Disk lease period expired 0.812 seconds ago in cluster stor.site.", "mmfs: disk lease renewed",
    ),
    "nodes.beegfs": (
        "BeeGFS: Timed out waiting for a response of the metadata server", "BeeGFS: connected to the metadata server",
    ),
    # --- settings, builds, accounts, checkpoints, numbers, data: texts of one program each
    "config.choice": ("In 'config': Could not find 'model/gpt_13b'", "In 'config': found 'model/gpt_13b'"),
    "config.struct_key": ("Key 'lrr' is not in struct", "Key 'lr' is in struct"),
    "config.parsers": (
        "configparser.NoOptionError: No option 'lr' in section: 'optim'", "reading it by configparser.ConfigParser",
    ),
    "env.ninja": (
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        "ninja: no work to do.",
    ),
    "env.squashfs": ("[ERROR] Command not found: mksquashfs", "[INFO] Creating squashfs by mksquashfs ..."),
    "env.preload": (
        "ERROR: ld.so: object 'libtcmalloc.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): "
        "ignored.", "LD_PRELOAD=libtcmalloc.so",
    ),
    "hub.refused_account": (
        "azure.core.exceptions.ClientAuthenticationError: Server failed to authenticate the request.",
        "the client has authenticated",
    ),
    "checkpoint.checksum": (
        "checksum mismatch for /ckpt/step_900/model-00003.safetensors: expected 9f1c, got 00b1",
        "checksum matches for /ckpt/step_900/model-00003.safetensors",
    ),
    "checkpoint.shard_missing": (
        "OSError: Shard file model-00003-of-00008.safetensors is missing", "Shard file model-00003-of-00008 is there",
    ),
    "numerical.became_nan": ("Training has failed: loss became nan at iteration 4410", "the loss became smaller"),
    "data.webdataset": (
        "webdataset.tariterators.TarError: unexpected end of data @ /data/shard-000121.tar",
        "loading it by webdataset.WebLoader",
    ),
}

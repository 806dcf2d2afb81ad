"""Disks and file systems."""

from __future__ import annotations

from safelaunch.core.why.findings import Rule

RULES = (
    Rule(
        "storage.full", "storage", (b"No space left on device", b"ENOSPC", b"disk is full"),
        rb"No space left on device|\bENOSPC\b|database or disk is full", "cause", "node", 0.88,
        summary="a disk is full",
        explain="The file system or its inodes are used up; with a name under /tmp or /dev/shm only this node is "
                "meant.", do="`df -h` and `df -i` of the path; clear /tmp and /dev/shm; fewer checkpoints.",
        source="errno(3), ENOSPC", order=3,
    ),
    Rule(
        "storage.quota", "storage", (b"Disk quota exceeded", b"quota exceeded", b"EDQUOT"),
        rb"[Dd]isk quota exceeded|\bEDQUOT\b|[Ff]ile (?:block|count) quota exceeded", "cause", "job", 0.92,
        summary="the disk quota is used up", explain="The user's or the project's quota of bytes or files.",
        do="Delete old checkpoints or move them; `quota -s`, `lfs quota`.", source="errno(3), EDQUOT", order=3,
    ),
    Rule(
        "storage.stale", "storage", (b"Stale file handle", b"Stale NFS file handle"), b"Stale (?:NFS )?file handle",
        "cause", "node", 0.82, action="restart", summary="a file handle went stale",
        explain="The server restarted, the export changed, or another node replaced the file.",
        do="Check that the mount answers on that node.", source="errno(3), ESTALE", order=3,
    ),
    Rule(
        "storage.short_write", "storage", (b"rite incomplete", b"short write", b"ncomplete write"),
        rb"\bWrite incomplete|\b(?:[Ss]hort|[Ii]ncomplete) write\b", "cause", "job", 0.66,
        summary="a file was written only in part", explain="The file system or the quota is full, or it fails.",
        do="df and the quota, from the node.", source="dmlc-core; coreutils", order=2,
    ),
    Rule(
        "storage.io_error", "storage",
        (b"Input/output error", b"Buffer I/O error", b"blk_update_request", b"critical medium error",
         b"Remote I/O error"),
        rb"\[Errno 5\] Input/output error|Input/output error|Buffer I/O error|I/O error, dev \S+"
        rb"|critical medium error|Remote I/O error", "cause", "node", 0.72,
        summary="a file system or disk answers with an I/O error",
        explain="The disk is dying, or the network file system lost its server.",
        do="Look at the node's kernel log; try the path from another node.", source="errno(3), EIO; Linux block layer",
        order=2,
    ),
    Rule(
        "storage.read_only", "storage", (b"Read-only file system", b"emounting filesystem read-only"),
        b"Read-only file system|[Rr]emounting filesystem read-only", "cause", "node", 0.82,
        summary="a file system is read-only",
        explain="The kernel made it read-only after an error, or it is meant so on compute nodes.",
        do="Write elsewhere; tell the admins if it should be writable.", source="errno(3), EROFS", order=3,
    ),
    Rule(
        "storage.endpoint", "storage",
        (b"Transport endpoint is not connected", b"Cannot send after transport endpoint shutdown",
         b"Software caused connection abort"),
        b"Transport endpoint is not connected|Cannot send after transport endpoint shutdown", "cause", "node", 0.68,
        action="exclude_and_restart", summary="the file system's client on this node has lost its server",
        explain="FUSE's or Lustre's client was evicted or died.", do="Keep the node out; remount.",
        source="errno(3), ENOTCONN, ESHUTDOWN", order=2,
    ),
    Rule(
        "storage.hung_task", "storage", (b"blocked for more than ",),
        rb"INFO: task (?P<task>\S+?):\d+ blocked for more than (?P<seconds>\d+) seconds", "cause", "node", 0.72,
        summary="{task} was stuck in the kernel for {seconds} s",
        explain="A process waits for a disk or a file system that does not answer (D state).",
        do="Look at the stack below the line: it names the file system. The node cannot be used until it answers.",
        source="Linux, khungtaskd",
    ),
    Rule(
        "storage.nfs", "storage", (b"not responding",), rb"nfs: server (?P<host>\S+) not responding", "cause", "node",
        0.72, summary="the NFS server {host} does not answer", explain="Processes wait in the kernel until it does.",
        do="Check the server; other nodes will show the same.", source="Linux, sunrpc",
    ),
    Rule(
        "storage.lustre", "storage", (b"LustreError", b"Lustre: "),
        rb"LustreError: .{0,300}?(?:evict|timed out|failed|-5|-108)"
        rb"|Lustre: .{0,300}?(?:Connection to \S+ .{0,300}? was lost|was evicted)", "cause", "node", 0.62,
        summary="the Lustre client lost its server", explain="Reads and writes wait or fail until it is back.",
        do="`lfs check servers` on that node.", source="Lustre client",
    ),
    Rule(
        "storage.gpfs", "storage", (b"mmfs",),
        rb"mmfs\S{0,60} .{0,300}?(?:[Uu]nmount|expelled|lost (?:membership|quorum)|\[E\]|\[X\]|panic)", "cause", "node",
        0.68, summary="the GPFS client has a fault", explain="The node was expelled or unmounted the file system.",
        do="mmgetstate, mmdiag --waiters.", source="IBM Storage Scale, mmfsd",
    ),
    Rule(
        "storage.ext4", "storage", (b"EXT4-fs error", b"XFS (", b"BTRFS error", b"BTRFS: error", b"nvme nvme"),
        rb"EXT4-fs error|XFS \(\S+\): .{0,300}?(?:[Cc]orruption|shut(?:ting)? ?down|I/O [Ee]rror)|BTRFS:? error"
        rb"|nvme nvme\d+: (?:I/O \d+\b.{0,300}?timeout|Device not ready|controller is down|Abort status)", "cause",
        "node", 0.75, action="exclude_and_restart", summary="a local disk or file system of the node has a fault",
        explain="The kernel reports damage or a disk that does not answer.", do="Keep the node out.",
        source="Linux, fs and nvme drivers",
    ),
    Rule(
        "storage.sqlite", "storage",
        (b"database is locked", b"disk I/O error", b"unable to open database file",
         b"database disk image is malformed"),
        rb"(?:sqlite3?\.|Operational|Database)\w{0,40}Error.{0,300}?(?:database is locked|disk I/O error"
        rb"|unable to open database file|malformed)|database disk image is malformed|database is locked", "cause",
        "job", 0.72, summary="an SQLite database cannot be used",
        explain="Network file systems often break SQLite's locks; or the file is damaged.",
        do="Keep it on a local disk.", source="SQLite; CPython, sqlite3", order=2,
    ),
    Rule(
        "storage.git", "storage",
        (b"invalid object ", b"is corrupt", b"loose object", b"unable to read tree", b"bad object", b"object file "),
        rb"error: invalid object \d+ [0-9a-f]+|(?:loose )?object (?:file )?\S+ .{0,300}?(?:is corrupt|is empty)"
        rb"|fatal: (?:bad object|unable to read tree|loose object)", "cause", "job", 0.78,
        summary="a git repository is damaged",
        explain="Objects are missing or empty, often after a full disk or a crash amid writing.",
        do="git fsck; clone again.", source="git",
    ),
    Rule(
        "storage.hdf5_lock", "storage",
        (b"BlockingIOError: [Errno 11]", b"unable to lock file", b"Resource temporarily unavailable",
         b"No locks available"), rb"unable to lock file, errno|BlockingIOError: \[Errno 11\]|No locks available",
        "cause", "job", 0.7, summary="a file could not be locked",
        explain="The file system does not do locks, or another process holds it.",
        do="HDF5_USE_FILE_LOCKING=FALSE for readers.", source="HDF5; errno(3), ENOLCK", order=1,
    ),
    Rule(
        "storage.busy_nfs", "storage", (b"Device or resource busy",), rb"Device or resource busy: '[^']*\.nfs",
        "context", "nobody", 0.3, summary="a deleted file on NFS is still open",
        explain="Harmless at exit: NFS keeps a .nfs file until the last reader closes it.", source="NFS client",
        order=1,
    ),
    Rule(
        "storage.permission", "config", (b"Permission denied", b"Operation not permitted"),
        rb"PermissionError: \[Errno (?:13|1)\] [\w ]+: '(?P<path>[^']*)'|^(?:mkdir|touch|cp|mv|tee|cat|bash"
        rb"|/\S*): .{0,300}?Permission denied", "cause", "job", 0.6, action="fix_config",
        summary="no permission: {path}",
        explain="The user may not read or write there; another user's cache or a wrong path.",
        do="ls -ld of each folder on the way.", source="errno(3), EACCES", order=1,
    ),
    Rule(
        "storage.cuda_shm", "storage", (b"/dev/shm",), b"/dev/shm.{0,300}?(?:No space|full|too small|insufficient)",
        "cause", "node", 0.7, action="fix_environment", summary="shared memory is full or too small",
        explain="Shared memory for data loaders and NCCL.", do="Larger /dev/shm; clear left-over files.",
        source="tmpfs(5)", order=4,
    ),
    Rule(
        "storage.timed_out", "storage",
        (b"Connection timed out",),
        rb"\[Errno 110\] Connection timed out: '/",
        "cause", "node", 0.7,
        summary="a file system did not answer in time",
        explain="An error of the network file system, with a path.",
        source="errno(3), ETIMEDOUT", order=4,
    ),
    Rule(
        "storage.parent", "storage",
        (b"Parent directory ",),
        rb"Parent directory (?P<path>\S+) does not exist",
        "cause", "job", 0.74, action="fix_config",
        summary="the folder {path} does not exist",
        explain="Nothing made it, or its file system is not mounted.",
        source="PyTorch, inline_container.cc", order=3,
    ),
    Rule(
        "storage.object_store", "storage",
        (b"FSTimeoutError", b"gcsfs.retry", b"google.api_core.exceptions", b"google.cloud.exceptions", b"s3fs.",
         b"ReadOnlyError"),
        rb"FSTimeoutError|gcsfs\.\w+\.HttpError|google\.(?:api_core|cloud)\.exceptions\.\w+"
        rb"|zarr\.errors\.ReadOnlyError",
        "cause", "job", 0.66, action="fix_config",
        summary="the object store did not do what was asked",
        explain="Access, load or the network between.",
        source="fsspec; Google Cloud Storage", order=2,
    ),
    Rule(
        "storage.locks", "storage",
        (b"The file lock", b"readonly database", b"unable to lock file, errno"),
        rb"The file lock '[^']*' could not be acquired|attempt to write a readonly database|unable to lock "
        rb"file, errno",
        "cause", "job", 0.72,
        summary="a file or database could not be locked or written",
        explain="The file system does not do locks, another process holds it, or it may not be written.",
        source="filelock; SQLite; HDF5", order=4,
    ),
)

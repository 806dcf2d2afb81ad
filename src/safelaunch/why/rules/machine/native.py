"""Crashes below Python: signals, heaps, failed checks."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_DUMP = "Run with python -X faulthandler and core dumps (ulimit -c unlimited); the native stack names the library."

RULES = (
    Rule(
        "native.elastic_signal", "native_crash",
        (b"(SIGSEGV) received by PID", b"(SIGBUS) received by PID", b"(SIGFPE) received by PID",
         b"(SIGILL) received by PID"),
        rb"Signal (?P<signal>\d+) \((?P<what>SIG(?:SEGV|BUS|FPE|ILL))\) received by PID (?P<pid>\d+)", "cause", "rank",
        0.82, summary="a rank died of {what}",
        explain="SIGSEGV: a bug in native code or unfitting libraries. SIGBUS: /dev/shm full, or a mapped file "
                "was truncated.", do=_DUMP, source="PyTorch, torch/distributed/elastic", order=2,
        sample="  traceback : Signal 11 (SIGSEGV) received by PID 4242",
        counter_sample="Signal 15 (SIGTERM) received by PID 4242",
    ),
    Rule(
        "native.elastic_code", "native_crash",
        (b"exitcode: -11", b"exitcode: -7", b"exitcode: -8", b"exitcode: -4", b"exitcode  : -11", b"exitcode  : -7",
         b"return code = -11", b"return code = -7"),
        rb"exitcode *: -(?P<signal>11|7|8|4)\b(?:.{0,300}?local_rank: (?P<local>\d+))?|return code = -(?:11|7)\b",
        "cause", "rank", 0.78, summary="a rank died of signal {signal}",
        explain="Negative exit codes are signals: -11 SIGSEGV, -7 SIGBUS.", do=_DUMP,
        source="PyTorch, torch/distributed/elastic; DeepSpeed launcher", order=2,
        sample="failed (exitcode: -11) local_rank: 3 (pid: 4242) of binary: /opt/env/bin/python",
        counter_sample="failed (exitcode: 1) local_rank: 3",
    ),
    Rule(
        "native.elastic_term", "unknown", (b"failed (exitcode: -1",),
        rb"failed \(exitcode: -(?P<signal>15|10|12)\) local_rank: (?P<local>\d+)", "cause", "rank", 0.5,
        summary="a rank was ended by signal {signal}, and nobody says by whom",
        explain="torchrun's word on the rank that failed first: one that it had ended itself would not be it.",
        do="Ask who sent it: a person, a script of the site, another process.",
        source="PyTorch, torch/distributed/elastic", order=2,
        sample="failed (exitcode: -15) local_rank: 0 (pid: 4242) of binary: /opt/env/bin/python",
        counter_sample="  exitcode  : -15 (pid: 4242)  (SIGTERM)",
    ),
    Rule(
        "native.abort_code", "native_crash",
        (b"exitcode: -6", b"exitcode  : -6", b"(SIGABRT) received by PID", b"return code = -6"),
        rb"exitcode *: -6\b|\(SIGABRT\) received by PID|return code = -6\b", "symptom", "rank", 0.45,
        summary="a rank aborted", explain="An uncaught C++ exception or a failed check; its words stand above.",
        source="PyTorch, torch/distributed/elastic", order=2,
        sample="failed (exitcode: -6) local_rank: 3 (pid: 4242) of binary: /opt/env/bin/python",
        counter_sample="failed (exitcode: 6) local_rank: 3",
    ),
    Rule(
        "native.stack", "native_crash",
        (b"in abort ()", b"in raise ()", b"in __GI_abort", b"std::terminate()", b"(gsignal+0x", b"(abort+0x"),
        rb"#\d+ .{0,40}\bin (?:raise|abort|__GI_abort|std::terminate)\b|\(gsignal\+0x|\(abort\+0x", "symptom", "rank",
        0.3, summary="a process aborted, by its native stack", explain="An uncaught C++ exception or a failed check; "
        "the frames above `abort` name the library.", source="gdb; glibc's backtrace", order=0,
        sample="#1  0x000014753985ae05 in abort () from /lib64/libc.so.6",
        counter_sample="the call to std::terminate() is allowed in abort handlers",
    ),
    Rule(
        "native.caught_signal", "native_crash",
        (b"Segfault encountered", b"Caught signal ", b"Signal: Segmentation fault", b"Signal: Bus error",
         b"Signal: Aborted", b"; stack trace: ***"),
        rb"\*\*\* (?P<what3>SIG(?:SEGV|BUS|FPE|ILL)) \(@.{0,200}?; stack trace: \*\*\*|Segfault encountered"
        rb"|Caught signal (?P<signal>\d+) \((?P<what>[^:)]*)"
        rb"|Signal: (?P<what2>Segmentation fault|Bus error|Aborted) \(\d+\)", "cause", "rank", 0.7,
        summary="the process caught a fatal signal: {what}{what2}{what3}",
        explain="A library's handler prints the native stack below.", do=_DUMP, source="UCX; Open MPI; glog", order=1,
        sample="[n3:4242 :0:4300] Caught signal 11 (Segmentation fault: invalid permissions for mapped object at "
               "address 0x7f)",
        counter_sample="Caught signal handlers: 0",
    ),
    Rule(
        "native.faulthandler", "native_crash", (b"Fatal Python error",),
        rb"Fatal Python error: (?P<what>Segmentation fault|Bus error|Floating point exception|Illegal instruction"
        rb"|[A-Za-z_]\w*.*)", "cause", "rank", 0.78, summary="fatal Python error: {what}",
        explain="Python's faulthandler or the interpreter itself prints the stacks below.", do=_DUMP,
        source="CPython, faulthandler", order=1,
        sample="Fatal Python error: Segmentation fault", counter_sample="Python error: none is fatal",
    ),
    Rule(
        "native.shell", "native_crash",
        (b"Segmentation fault", b"Bus error", b"Illegal instruction", b"Floating point exception"),
        rb"(?P<what>Segmentation fault|Bus error|Illegal instruction|Floating point exception)(?: +\(core dumped\)|$"
        rb"| {3,}|: address not mapped)", "cause", "rank", 0.72, summary="the process died: {what}",
        explain="The shell or a handler reports a fatal signal.", do=_DUMP, source="bash, job control",
        sample="./run.sh: line 3:  4242 Segmentation fault      (core dumped) ./solver",
        counter_sample="Segmentation fault handler installed",
    ),
    Rule(
        "native.kernel_segfault", "native_crash", (b": segfault at ", b"traps: ", b"general protection fault"),
        rb"(?P<process>(?:python|pt_|torch|ray|java|julia|node|train|megatron|nccl|hydra"
        rb"|mpi)[\w./:-]{0,60})\[\d+\](?:: segfault at| (?:trap invalid opcode|general protection))",
        "cause", "node", 0.75,
        summary="the kernel saw {process} crash", explain="A fault in native code; the line names the library.",
        do=_DUMP, source="Linux, arch/x86/mm/fault.c",
        sample="python[4242]: segfault at 0 ip 00007f sp 00007f error 4 in libtorch_cpu.so[7f+8]",
        counter_sample="sshd[4242]: segfault at 0 ip 00007f sp 00007f error 4 in sshd",
    ),
    Rule(
        "native.heap", "native_crash",
        (b"double free or corruption", b"free(): invalid", b"corrupted size vs. prev_size", b"malloc(): ",
         b"munmap_chunk(): invalid", b"corrupted double-linked list", b"malloc_consolidate()",
         b"stack smashing detected", b"buffer overflow detected", b"realloc(): invalid", b"sysmalloc: Assertion"),
        rb"double free or corruption|free\(\): invalid|corrupted size vs\. prev_size|malloc(?:_consolidate)?\(\): "
        rb"|munmap_chunk\(\): invalid|corrupted double-linked list|(?:stack smashing|buffer overflow) detected"
        rb"|realloc\(\): invalid|sysmalloc: Assertion", "cause", "rank", 0.78, summary="the heap is damaged",
        explain="Native code wrote where it may not; often two libraries that do not fit.", do=_DUMP,
        source="glibc, malloc.c",
        sample="double free or corruption (!prev)", counter_sample="no double free was found",
    ),
    Rule(
        "native.terminate", "native_crash", (b"terminate called",),
        b"terminate called (?:after throwing an instance of '(?P<type>[^']*)'|without an active|recursively)",
        "symptom", "rank", 0.4, summary="an uncaught C++ exception ({type})",
        explain="Its words follow after `what():`.", source="libstdc++", order=-1,
        sample="terminate called after throwing an instance of 'c10::Error'", counter_sample="terminate was not called",
    ),
    Rule(
        "native.what", "native_crash", (b"what():  ", b"what(): "), rb"what\(\): +(?P<message>.+)", "cause", "rank",
        0.5, summary="{message}", explain="An uncaught C++ exception.", source="libstdc++", order=-5,
        sample="  what():  vector::_M_range_check: __n (which is 8) >= this->size() (which is 8)",
        counter_sample="what() is virtual",
    ),
)

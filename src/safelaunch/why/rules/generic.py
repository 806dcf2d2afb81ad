"""Python's own lines: tracebacks and bare exception lines, of any program."""

from __future__ import annotations

from safelaunch.why.findings import Rule

# The reader puts a traceback together per rank and tries every rule on its exception's line; this one is for those that
# no other rule knows. `block` is the traceback; the judge takes the deepest frame of the user's own code from it.
EXCEPTION = "python.exception"
LINE = "python.line"
CUT_OFF = "the log ends inside a traceback, before the line that names its exception"

RULES = (
    Rule(
        EXCEPTION, "user_code", (b"Traceback (most recent call last)",),
        rb"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (?P<message>.*))?$", "cause", "rank", 0.6,
        summary="{type}: {message}", explain="An exception that nothing caught.",
        do="Read the deepest frame of your own code.", source="CPython, traceback.c", order=-10,
        sample='Traceback (most recent call last):\n  File "t.py", line 3, in f\n    g()\nmypackage.errors.Strange: '
               "no such thing",
        counter_sample="mypackage.errors.strange thing",
    ),
    Rule(
        LINE, "user_code", (b"Error: ", b"Exception: "),
        rb"(?:^|[\])|:>] ?)(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)): (?P<message>.+)", "cause", "rank",
        0.46, summary="{type}: {message}", explain="The line of an exception without its traceback.",
        do="Look for the lines around it.", source="CPython", order=-11,
        sample="mypackage.StrangeError: no such thing", counter_sample="an error: no such thing",
    ),
    Rule(
        "python.error_word", "unknown", (b"ERROR", b"FATAL", b"CRITICAL", b"[FATAL]"),
        rb"(?:^|[\s\[:|])(?:ERROR|FATAL|CRITICAL)\b[\]:|\s-]*(?P<message>.+)", "context", "nobody", 0.2,
        summary="{message}", explain="A line that its program calls an error.", source="various", order=-12,
        sample="ERROR - the solver gave up", counter_sample="no errors: the solver gave up on error bounds",
    ),
)

"""Python's own lines: tracebacks and bare exception lines, of any program."""

from __future__ import annotations

from safelaunch.core.findings import Rule

# The reader puts a traceback together per rank and tries every rule on its exception's line; this one is for those that
# no other rule knows. `block` is the traceback; the judge takes the deepest frame of the user's own code from it.
EXCEPTION = "python.exception"

RULES = (
    Rule(
        id=EXCEPTION, category="user_code", role="cause", blames="rank", weight=0.6, action="fix_user_code",
        anchor=(b"Traceback (most recent call last)",),
        pattern=rb"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (?P<message>.*))?$",
        summary="{type}: {message}", explain="An exception that nothing caught.",
        do="Read the deepest frame of your own code.", source="CPython, traceback.c", order=-10,
    ),
)

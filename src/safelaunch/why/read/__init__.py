"""Bytes of a log to findings: whose line it is, which rules it meets, tracebacks, ranks."""

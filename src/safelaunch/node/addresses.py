"""Where other nodes reach this one. Standard library, Python 3.9."""

from __future__ import annotations

import re


def own_addresses() -> list[str]:
    """This host's IPv4 addresses, without loopback where there are others: proc(5), net/fib_trie."""
    try:
        with open("/proc/net/fib_trie") as file:
            found = re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", file.read(1 << 20))
    except OSError:
        found = []
    return list(dict.fromkeys(one for one in found if not one.startswith("127.")))[:8] or ["127.0.0.1"]

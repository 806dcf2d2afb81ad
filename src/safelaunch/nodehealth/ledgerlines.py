"""Evidence as text: a line of the shared ledger, and events of a run's journal.

Anyone who can write to the ledger's folder can write a line. It has a node's name, words for people, and numbers within
bounds, or it is skipped. Its author is the owner of its file, not what the line says.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from safelaunch.base.model import Event
from safelaunch.nodehealth.ledger import CLEARED, ExclusionTerm, NodeEvidence
from safelaunch.run.journal import MAX_T_S

VERSION = 1
MAX_LINE_BYTES = 2048   # one write, far below PIPE_BUF
_START = b'{"v":'
# What Slurm takes for a node's name, and no option, path or pattern: slurm.conf(5), NodeName.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9._:@/-]{0,64}", re.ASCII)


def is_node_name(text: object) -> bool:
    """Whether a text can be a node's name."""
    return isinstance(text, str) and _NODE.fullmatch(text) is not None


def render_line(evidence: NodeEvidence) -> bytes:
    """The ledger's line, with its newline; a long reason is cut. Raises ValueError for what cannot be a line."""
    words = (evidence.kind, evidence.run, evidence.cluster)
    if not is_node_name(evidence.node) or not all(map(is_word, words)):
        raise ValueError(f"not a line of the ledger: {evidence}")
    why = evidence.why[:MAX_LINE_BYTES]
    while True:
        line = _dump(evidence, why)
        if len(line) <= MAX_LINE_BYTES:
            return line
        why = why[: len(why) // 2]


def parse_line(line: bytes, owner: str) -> NodeEvidence | None:
    """The evidence of a line in a file of `owner`'s; None when it is torn, odd or of another version.

    A write that was cut off leaves no newline: the next line starts in the middle of that one.
    """
    start = line.rfind(_START)
    if start < 0 or len(line) - start > 2 * MAX_LINE_BYTES:
        return None
    try:
        raw: Any = json.loads(line[start:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or raw.get("v") != VERSION:
        return None
    return _evidence(raw, raw.get("t"), owner, raw.get("run", ""))


def node_suspected(evidence: NodeEvidence) -> dict[str, object]:
    """Fields of the journal's event `node_suspected`; those of `node_cleared` are node, why and owner of them."""
    return {"node": evidence.node, "kind": evidence.kind, "why": evidence.why, "owner": evidence.owner,
            "attempt": evidence.attempt, "fingerprint": evidence.fingerprint, "cluster": evidence.cluster}


def node_excluded(exclusion: ExclusionTerm) -> dict[str, object]:
    """Fields of the journal's event `node_excluded`."""
    return {"node": exclusion.node, "why": exclusion.why, "owner": exclusion.owner,
            "until": round(exclusion.until_t, 3), "score": round(exclusion.score, 3)}


def evidence_of(events: Iterable[Event], run: str, cluster: str = "") -> tuple[NodeEvidence, ...]:
    """The evidence that a run's journal holds, in its order; odd events are skipped. `cluster`: of events without."""
    found = (_of_event(event, run, cluster) for event in events if event.event in (
        "node_suspected", "node_cleared", "evidence_withdrawn"))
    return tuple(one for one in found if one is not None)


def _of_event(event: Event, run: str, cluster: str) -> NodeEvidence | None:
    # Before kinds were written down, the leader suspected lost nodes only.
    kind = CLEARED if event.event == "node_cleared" else event.data.get("kind", "lost")
    owner = event.data.get("owner", "")
    data = {"cluster": cluster, **event.data, "kind": kind}
    return _evidence(data, event.t, owner if isinstance(owner, str) else "", run)


def _evidence(raw: Mapping[str, object], t: object, owner: str, run: object) -> NodeEvidence | None:
    node, kind, why = raw.get("node"), raw.get("kind"), raw.get("why", "")
    attempt, fingerprint, cluster = raw.get("attempt"), raw.get("fingerprint", ""), raw.get("cluster", "")
    if not isinstance(t, (int, float)) or isinstance(t, bool) or not abs(t) < MAX_T_S:   # NaN is not, either
        return None
    if not is_node_name(node) or not all(map(is_word, (kind, run, cluster))):
        return None
    if attempt is not None and (not isinstance(attempt, int) or isinstance(attempt, bool) or abs(attempt) > 1 << 31):
        return None
    return NodeEvidence(str(node), str(kind), float(t), _printable(str(why)[:MAX_LINE_BYTES]), owner, str(run), attempt,
                        _cause(str(fingerprint)), str(cluster))


def is_word(text: object) -> bool:
    """Whether a text can be an id, a kind or a fingerprint of a line."""
    return isinstance(text, str) and _WORD.fullmatch(text) is not None


def _cause(fingerprint: str) -> str:
    """A fingerprint that fits a line: a text becomes its checksum, as it is only ever compared, within one run."""
    if is_word(fingerprint):
        return fingerprint
    return f"crc:{zlib.crc32(fingerprint.encode(errors='replace')):08x}"   # hashlib would load OpenSSL: 3 MB


def _printable(text: str) -> str:
    """Without halves of characters, which JSON can say and no terminal can be sent."""
    return text.encode(errors="replace").decode()


def _dump(evidence: NodeEvidence, why: str) -> bytes:
    fields = {"v": VERSION, "t": round(evidence.t, 3), "node": evidence.node, "kind": evidence.kind, "why": why,
              "run": evidence.run, "attempt": evidence.attempt, "fingerprint": _cause(evidence.fingerprint),
              "cluster": evidence.cluster}
    return (json.dumps(fields, separators=(",", ":"), ensure_ascii=True) + "\n").encode()

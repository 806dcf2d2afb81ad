"""What the ranks' own Pythons say (node.ranksoftware), as the results of checks that ask for the same."""

from __future__ import annotations

from safelaunch.nodehealth.checks.results import OK, SKIPPED, CheckReport, CheckResult

MOST_TEXT = 80


def read(node: str, told: object) -> CheckReport | None:
    """For nodehealth.checks.compare; None = the node has told nothing."""
    if not isinstance(told, dict):
        return None
    facts = {key: value[:MOST_TEXT] for key in ("python", "torch", "nccl") for value in [told.get(key)]
             if isinstance(value, str)}
    if "python" not in facts:
        return None
    python = CheckResult("python", "", OK, "", facts)
    return CheckReport(node, "ranks", (
        python, python._replace(name="torch", outcome=OK if "torch" in facts else SKIPPED)))

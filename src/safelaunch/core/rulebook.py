"""All rules of `why`, listed."""

from __future__ import annotations

from safelaunch.core.findings import Rule
from safelaunch.core.rules import generic

RULES: tuple[Rule, ...] = (*generic.RULES,)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}

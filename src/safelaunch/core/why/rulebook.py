"""All rules of `why`, listed."""

from __future__ import annotations

from safelaunch.core.why.findings import Rule
from safelaunch.core.why.rules import (
    accelerators,
    builds,
    checkpoint,
    config,
    data,
    environment,
    fabric,
    frameworks,
    generic,
    gpu,
    healthy,
    hub,
    kernel,
    launcher,
    layouts,
    memory,
    native,
    network,
    nodes,
    numerical,
    rendezvous,
    serving,
    slurm,
    steps,
    storage,
)

RULES: tuple[Rule, ...] = (
    *slurm.RULES, *steps.RULES, *gpu.RULES, *memory.RULES, *network.RULES, *rendezvous.RULES, *launcher.RULES,
    *native.RULES,
    *environment.RULES, *storage.RULES, *checkpoint.RULES, *data.RULES, *numerical.RULES, *hub.RULES, *config.RULES,
    *healthy.RULES, *kernel.RULES, *serving.RULES, *frameworks.RULES, *builds.RULES, *layouts.RULES,
    *accelerators.RULES, *fabric.RULES, *nodes.RULES, *generic.RULES,
)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}

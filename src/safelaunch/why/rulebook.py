"""All rules of `why`, listed."""

from __future__ import annotations

from safelaunch.why.findings import Rule
from safelaunch.why.rules import (
    builds,
    checkpoint,
    config,
    data,
    environment,
    frameworks,
    generic,
    healthy,
    hub,
    launcher,
    layouts,
    numerical,
    rendezvous,
    serving,
    steps,
)
from safelaunch.why.rules.machine import (
    accelerators,
    fabric,
    gpu,
    kernel,
    memory,
    native,
    network,
    nodes,
    slurm,
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

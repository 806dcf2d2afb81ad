"""All rules of `why`, listed, and what is done about each category."""

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
    serving,
    slurm,
    storage,
)

RULES: tuple[Rule, ...] = (
    *slurm.RULES, *gpu.RULES, *memory.RULES, *network.RULES, *launcher.RULES, *native.RULES, *environment.RULES,
    *storage.RULES, *checkpoint.RULES, *data.RULES, *numerical.RULES, *hub.RULES, *config.RULES, *healthy.RULES,
    *kernel.RULES, *serving.RULES, *frameworks.RULES, *builds.RULES, *layouts.RULES, *accelerators.RULES, *fabric.RULES,
    *nodes.RULES, *generic.RULES,
)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}

# What is done about a category when its rule names nothing better (design §9).
ACTIONS = {
    "gpu_hardware": "exclude_and_restart", "network": "restart", "node_failure": "exclude_and_restart",
    "host_oom": "fix_config", "cuda_oom": "fix_config", "time_limit": "requeue_only", "preempted": "requeue_only",
    "cancelled": "none", "storage": "fix_storage", "checkpoint": "fix_config", "rendezvous": "restart",
    "user_code": "fix_user_code", "config": "fix_config", "environment": "fix_environment",
    "version_mismatch": "fix_environment", "data": "fix_user_code", "numerical": "fix_config",
    "native_crash": "restart", "hang": "restart", "hub_auth": "fix_config", "none": "none", "unknown": "restart",
}

"""A train.yaml that is changed in one to four places: a value, a key, a line, some bytes. Drawn by seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from safelaunch.config.keys import KEYS
from tests.hostile import BAITS

EXAMPLES = Path(__file__).parents[2] / "examples"
RICH = """\
name: bloom
command: python train.py --lr 1e-4 "${RESUME_ARGS[@]}"
env: {OMP_NUM_THREADS: "1", B: "${env.A}", A: x}
slurm: {nodes: 4, gpus_per_node: 8, time: "1-00:00:00", partition: main, exclude: "n[7-9]", account: a, mem: 10G}
launch: {with: torchrun, nproc_per_node: 8}
srun: {extra: [--cpu-bind=none]}
container: {runtime: apptainer, image: a.sif, mounts: [/a:/b], env: [A]}
resume: {dir: ckpt, by: training, args: "--resume {path}", pattern: "step_*"}
restart: {max_restarts: 3, backoff: 10s, via: auto, max_time: 2d}
progress: {step: 'step (\\d+)', loss: auto}
notify: {to: ["env:URL"], when: [gave_up], smtp: localhost}
hang: {no_progress: 30m, then: restart}
slow: {tolerance: 5%}
checks: {boot: quick, skip: [disk], timeout: 30s}
suspects: {max_excluded: 2, ledger: ledger}
kill_switch: {file: control/kill, grace: 2m, signal: SIGUSR2}
preserve_site: {for: 10m, when: [hang]}
setup: |
  module load cuda
spare_nodes: 1
min_nodes: 2
run_dir: other
"""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 65_536, 10**9, 10**30, 0.5, float("inf"), float("nan"), "", " ", "x", "auto", "no",
    "1-00:00:00", "99999999999d", "-1s", "1e999", "n[0-3]", "n[0-99999999]", "${env.A}", "${", "/a/b", "/dev/zero",
    "../..", "~", "%j", "mail:x", "x" * 200_000, "\u202e", "é", [], [[]], ["x"], [None], [1, 2], {}, {"a": {}},
    {"a": [1]}, {"": ""}, *BAITS)


@cache
def _bases() -> tuple[tuple[str, Any], ...]:
    texts = (RICH, RICH, RICH, *(path.read_text() for path in sorted(EXAMPLES.glob("*/train.yaml"))))
    return tuple((text, yaml.safe_load(text)) for text in texts)


PARTS = tuple(dict.fromkeys(part for name in KEYS for part in name.split(".")))


def mutate(dice: random.Random) -> bytes:
    """A changed file."""
    text, tree = dice.choice(_bases())
    if count := dice.choice((0, 1, 1, 2, 4)):
        tree = copy.deepcopy(tree)
        for _ in range(count):
            _change(dice, tree)
        text = yaml.safe_dump(tree, allow_unicode=dice.random() < 0.5, sort_keys=False)
    for _ in range(dice.choice((0, 0, 1, 2))):
        text = dice.choice(LINES)(dice, text)
    data = bytearray(text.encode(errors="surrogateescape"))
    for _ in range(dice.choice((0, 0, 0, 1, 5))):
        at = dice.randrange(len(data) + 1)
        data[at:at + dice.choice((0, 1, 9))] = dice.choice(
            (b"", b"\x00", b"\xff", b"\x1b[2J", b"&a ", b"*a ", b"!!python/x ", b"<<: ", b'"', b"{", b"]", b"\t",
             b"|\n", b"? ", b"- ", b"---\n", b"...\n", b"%TAG ! x\n", dice.randbytes(3)))
    return bytes(data)


def _change(dice: random.Random, tree: Any) -> None:
    """One value below `tree` is replaced, renamed, or gets a neighbour; or a key anywhere gets a value."""
    value = dice.choice(VALUES)
    if dice.random() < 0.4:
        section, _, name = dice.choice(tuple(KEYS)).rpartition(".")
        inside = tree.setdefault(section, {}) if section else tree
        if isinstance(inside, dict):
            inside[name] = value
        return
    at = tree
    while True:
        inner = [value for value in (at.values() if isinstance(at, dict) else at) if isinstance(value, (dict, list))]
        if not inner or dice.random() < 0.4:
            break
        at = dice.choice(inner)
    if isinstance(at, list):
        at.insert(dice.randrange(len(at) + 1), value)
        return
    match dice.randrange(5 if at else 1):
        case 0 | 1:
            at[dice.choice(PARTS)] = value
        case 2 | 3:
            at[dice.choice(sorted(at, key=str))] = value
        case _:
            at[dice.choice((*PARTS, str(value)[:20]))] = at.pop(dice.choice(sorted(at, key=str)))


def _swap(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    one, two = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return "\n".join(lines)


def _indent(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    at = dice.randrange(len(lines))
    lines[at] = dice.choice((" ", "  ", "\t", "- ")) + lines[at]
    return "\n".join(lines)


def _twice(dice: random.Random, text: str) -> str:
    lines = text.split("\n")
    at = dice.randrange(len(lines))
    lines[at:at] = [lines[at]] * dice.choice((1, 1, 2, 5000))
    return "\n".join(lines)


LINES: tuple[Callable[[random.Random, str], str], ...] = (_swap, _indent, _twice)

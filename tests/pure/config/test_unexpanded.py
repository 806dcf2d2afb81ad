"""Keys of train.yaml in the user's own shell code are told: they are empty on the nodes."""

from __future__ import annotations

from safelaunch.config.resolve import ConfigLayer, resolve
from tests.tables import each

ENV = 'train.yaml:2: command: ${name} is empty on the nodes, because keys are not expanded in command: write env: ' \
      '{NAME: "${name}"}, and ${NAME} here'


def notes(command: str, more: str = "", **environ: str) -> tuple[str, ...]:
    text = f"name: t\ncommand: {command}\nslurm: {{nodes: 1}}\n{more}"
    return tuple(note for note in next(iter(resolve_all(text, environ))) if "without a further step" not in note)


def resolve_all(text: str, environ: dict[str, str]) -> list[tuple[str, ...]]:
    return [resolve([ConfigLayer("file", "train.yaml", text)], (), environ).notes]


@each(("command", "more", "told"), [
    ("python train.py --out ckpt/${name} ${RESUME_ARGS}", "", (ENV,)),
    ("python train.py --out $name/$name", "", (ENV,)),
    ("python train.py --out ${slurm.nodes}", "", (
        'train.yaml:2: command: ${slurm.nodes} is no variable of a shell, because keys are not expanded in command: '
        'write env: {SLURM_NODES: "${slurm.nodes}"}, and ${SLURM_NODES} here',)),
    ("python train.py --out ${name}", "env: {name: x}\n", ()),
    ("python train.py --out ${name}", "setup: name=x\n", ()),
    ("for name in a b; do python train.py $name; done", "", ()),
    ("python train.py --out ${NAME} $names ${HOME}", "", ()),
    ("awk '{print $name}' x", "", ()),
    ("python train.py --out x", "", ()),
], ids=["in braces", "without", "a key of a section", "in env", "in setup", "a loop's", "others", "quoted", "none"])
def test_a_key_that_the_shell_does_not_know_is_told(command: str, more: str, told: tuple[str, ...]) -> None:
    assert notes(command, more) == told


def test_a_variable_of_the_submitter_s_is_none() -> None:
    assert notes("python train.py --out ${name}", name="x") == ()

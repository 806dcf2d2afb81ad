"""A resume that the training never hears of is refused: it would start from the beginning each time, unsaid."""

from __future__ import annotations

from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.resumeway import takes_words
from safelaunch.errors import ConfigError
from tests.tables import each

ARGS = 'dir: ckpt, args: "--load {path}"'


def problems(command: str, resume: str, setup: str = "") -> list[str]:
    text = "command: |\n" + "".join(f"  {line}\n" for line in command.split("\n"))
    text += "setup: |\n" + "".join(f"  {line}\n" for line in setup.split("\n")) if setup else ""
    try:
        resolve([ConfigLayer("file", "t.yaml", f"{text}resume: {{{resume}}}\n")], [], {})
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


@each(("command", "resume", "setup"), [
    ("python train.py ${RESUME_ARGS}", ARGS, ""),
    ('python train.py "${RESUME_ARGS[@]}"', ARGS, ""),
    ("python train.py $RESUME_ARGS", ARGS, ""),
    ("if ((${#RESUME_ARGS[@]})); then ./go on; else ./go; fi", ARGS, ""),
    ("echo it\\'s; python train.py ${RESUME_ARGS}", ARGS, ""),
    ("cat <<EOF\nit's\nEOF\npython train.py ${RESUME_ARGS}", ARGS, ""),
    ("python train.py --load $SAFELAUNCH_RESUME_PATH", "dir: ckpt", ""),
    ("bash -c 'python train.py --load $SAFELAUNCH_RESUME_PATH'", "dir: ckpt", ""),
    ("python train.py", "dir: ckpt", 'export FROM="${SAFELAUNCH_RESUME_STEP:-0}"'),
    ("python train.py", "dir: ckpt, by: training", ""),
    ("sh train.sh", f"{ARGS}, by: training", ""),
    ("python train.py", "keep_trying: 1", ""),
], ids=lambda text: text[:40])
def test_a_command_that_can_learn_of_the_checkpoint_passes(command: str, resume: str, setup: str) -> None:
    assert problems(command, resume, setup) == []


@each(("command", "resume", "setup", "said"), [
    ("python train.py", ARGS, "", ":3:27: resume.args: reaches no training: command would start"),
    ("python train.py", "dir: ckpt", "", ":3:15: resume.dir: reaches no training: command is never told"),
    ("python train.py # ${RESUME_ARGS}", ARGS, "", "in single quotes or in a comment"),
    ("bash -c 'python train.py ${RESUME_ARGS}'", ARGS, "", "in single quotes or in a comment"),
    ("python train.py # $SAFELAUNCH_RESUME_PATH", "dir: ckpt", "", "never told"),
    ("python train.py ${RESUME_ARGS}", "dir: ckpt", "", "is empty without resume.args"),
    ("python train.py ${RESUME_ARGS_OF_MINE}", ARGS, "", "would start from the beginning"),
    ("python train.py", ARGS, "echo ${RESUME_ARGS}", "would start from the beginning"),
], ids=lambda text: text[:40])
def test_a_resume_that_reaches_no_training_is_refused_with_its_place(
    command: str, resume: str, setup: str, said: str,
) -> None:
    (problem,) = problems(command, resume, setup)
    assert said in problem


def test_the_refusal_says_what_to_do() -> None:
    (problem,) = problems("sh train.sh", ARGS)
    assert "write ${RESUME_ARGS} into it" in problem and "resume.by: training" in problem


def test_one_mistake_is_said_once() -> None:
    (problem,) = problems("python train.py", 'dir: ckpt, args: "--load {file}"')
    assert "only {path} and {step}" in problem


@each(("command", "expected"), [
    ('python -u train.py --data "$HOME/a b"', True), ("/usr/bin/python3.11 -m pkg", True),
    ("python a.py | tee log", False), ("python a.py > log", False), ("./a.out", False), ("bash a.sh", False),
    ("python a.py # why", False), ("python a.py\npython b.py", False), ("python -c 'print(\"a\")'", True),
])
def test_words_are_put_behind_one_plain_python_command_only(command: str, expected: bool) -> None:
    assert takes_words(command) is expected

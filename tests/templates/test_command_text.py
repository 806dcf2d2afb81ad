"""`command` as the script runs it, against the same text as the argument of a bash, which is what it stands for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import safelaunch
from safelaunch.config.io.bashtext import is_complete
from safelaunch.script.script import render
from tests.hostile import LONG
from tests.pure.script.test_script import MINIMAL, TEMPLATE, plan_of

# Says what it was given, and whether it runs in the place of the shell that began the command.
PROBE = """\
#!/bin/bash
printf '<%s>' "$@"; echo
env -u SAFELAUNCH_COMMAND -u SAFELAUNCH_SETUP | grep '^[A-Z]=' | sort
[[ $$ == "$SHELL_PID" ]] && echo replaced >"$SEEN" || echo child >"$SEEN"
"""
STAND_IN = 'while [[ $1 == --* ]]; do shift; done; exec "$@"'   # one task of srun
RESUME = ("--load", "a b", "")

BEFORE = (
    "cd /", "X=5", 'export Y="a b"', 'f() { "$PROBE" in f "$@"; }', "set -e", "set -u", "set -o pipefail", "set -f",
    "set -a", "set -- own words", "if true; then X=1; fi", "cat <<EOF\nit's; x && y\nEOF", ': "a; b" # c; d',
    "trap 'echo bye $?' EXIT", "trap 'echo failed' ERR", "trap : USR1", "for i in 1 2; do :; done",
    "case x in x) Q=1;; esac", "[[ a || b ]]", "# a comment; x && y", "it's=1; '", 'X=$(echo "a;b")', "a=(1 2\n3)",
    'shopt -s expand_aliases\nalias p="A=7 $PROBE"', "echo hi | cat", "(exit 3)", "false", "! true",
    "exit 3", "echo \\; x", "nosuch", "exec 2>&1", "set -o posix", "g() {\n true\n}", "while false; do :; done",
    "{ :; }",     "shopt -s nullglob extglob", "unset RESUME_ARGS", "true \\", "eval 'X=2; :'", "true",
    'h() { echo "sees $?"; }', 'h() { echo "sees $?"; }\nfalse')
BETWEEN = ("\n", "\n", "\n", "; ", " && ", " || ", " \\\n", " | ", "\n\n# it's\n", ";\n", " &&\n", " ||  # c\n")
SETS = ("A=1", 'B="$X y"', "A+=z", "B=$(echo hi)", "PATH=/none:$PATH", "IFS=,", "HOME=/tmp", "C=", "D=~", "B=$B$A",
        "m=(1)")
FIRST = ('"$PROBE"', '"$PROBE"', '"$PROBE"', "$PROBE", "f", "p", 'exec "$PROBE"', 'command "$PROBE"', "echo", "nosuch",
         'eval "$PROBE"', '! "$PROBE"', '"$@"', "$E", "$(false)", 'env "$PROBE"', '{ "$PROBE"', '(cd /; "$PROBE"',
         "exit", "test -f", 'if true; then "$PROBE"', "A[1]=x", "\\p", "false", "h", "return")
WORD = ('"${RESUME_ARGS[@]}"', '"$@"', "'a b'", '"$X"', "$(echo 1 2)", "`echo 3`", "{a,b}", "~", "$((1+2))",
        "${X:-d}", '"x $(echo "q;r") y"', "p*", "k=v", "--", "$?", "$'a\\nb'", "a#b", "# c", "[a]=b", "<(:)", "2>&1",
        "\\\n", "$(false)", '"a\nb"', "'it;s'", "\\;", "$(case a in a) echo 1;; esac)", '"$(echo ")")"', '${X:-"a b"}',
        "$", "é", "${#RESUME_ARGS[@]}", "$((1<<2))", '"${B}"', "2", "if", "}", ")")
TAIL = ("", "", "", "", "\n", " # c", ";", " >&2", " | cat", " <<<x", " && true", "; # c\n", "; }", "; fi", ")",
        " \\", " || :")
SETUPS = ("", "", "", "true", 'f() { "$PROBE" setup "$@"; }\nX=3', "set -eu", "set -a", "trap : USR2",
          'shopt -s expand_aliases; alias p="A=7 $PROBE"')


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A shell text of a few commands; many are errors."""
    def some(words: tuple[str, ...], most: int) -> list[str]:
        return draw(st.lists(st.sampled_from(words), max_size=most))

    before = "".join(word + draw(st.sampled_from(BETWEEN)) for word in some(BEFORE, 3))
    command = " ".join([*some(SETS, 2), draw(st.sampled_from(FIRST)), *some(WORD, 3)])
    return before + command + draw(st.sampled_from(TAIL))


@dataclass(frozen=True)
class Bench:
    """Runs texts in a folder, with all that they need and nothing that would prefix their lines."""

    folder: Path

    def run(self, *argv: str, **env: str) -> tuple[int, str, str]:
        """(exit code, what it said, how the probe ran) of a process."""
        seen = self.folder / "seen"
        seen.write_text("")
        done = subprocess.run(
            argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=200, env={"PATH": str(self.folder / "bin"), "PROBE": str(self.folder / "probe"), "SEEN": str(seen),
                             "LC_ALL": "C.UTF-8", "HOME": "/root", "SAFELAUNCH_MASTER_ADDR": "here", **env})
        return done.returncode, done.stdout.decode(errors="replace"), seen.read_text()

    def as_argument(self, text: str, setup: str) -> tuple[int, str, str]:
        """The text as the argument of a bash, the shell of setup if there is one."""
        if not setup:
            return self.run("bash", "-c", f'RESUME_ARGS=("$@")\n{text}', "training", *RESUME)
        return self.run("bash", "-c", f'eval "$1"; shift; RESUME_ARGS=("$@")\n{text}', "training", setup, *RESUME)

    def as_command(self, text: str, setup: str) -> tuple[int, str, str]:
        """The text as the script runs it."""
        script = self.folder / "job.sbatch"
        plan = plan_of(MINIMAL)._replace(command=text, setup=setup)
        script.write_text(render(TEMPLATE, plan, python="/none", library=(),
                                 srun=("bash", "-c", STAND_IN, "srun"), is_complete=is_complete))
        return self.run("bash", str(script), "attempt", *RESUME)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "bin").mkdir()
    for name in ("bash", "cat", "env", "grep", "hostname", "sort"):
        (folder / "bin" / name).symlink_to(f"/usr/bin/{name}")
    (folder / "lib").mkdir()
    (folder / "lib" / "safelaunch").symlink_to(Path(safelaunch.__file__).parent)   # as beside a supervisor
    (folder / "probe").write_text(PROBE)
    (folder / "probe").chmod(0o755)
    yield Bench(folder)


# Where a shell stays that would not stay beside an argument (an alias among it): rare, and it does what bash does
# anywhere else.
SHELL_STAYS = re.compile(
    r"""IFS=|alias |\bp(?:[ ;\n]|\Z)|#[^\n]*\\\n|[am]=\(|<\(:\)|<<2|case a in|\\\Z"""
    r"""|\$PROBE"? (?:[$`"][^ ]* )*[$`]""", re.DOTALL)


@settings(max_examples=4000 if LONG else 150, deadline=None, derandomize=not LONG,
          suppress_health_check=list(HealthCheck))
@given(text=texts(), setup=st.sampled_from(SETUPS))
def test_any_text_does_what_it_does_as_the_argument_of_a_bash(bench: Bench, text: str, setup: str) -> None:
    text = f"export SHELL_PID=$$\n{text}"
    code, said, how = bench.as_argument(text, setup)
    if re.search("syntax error|unexpected EOF", said):   # bash's words and codes for those differ with the way in
        return

    got = bench.as_command(text, setup)

    assert (got[0], plain(got[1])) == (code, plain(said))
    assert got[2] == how or got[2] == "replaced\n" or SHELL_STAYS.search(text), "a shell stays beside the training"


def plain(said: str) -> str:
    """Without the line numbers: bash counts a command over many lines in its own way. In the order of the characters:
    both ends of a pipe speak at once.
    """
    return "".join(sorted(re.sub(r"training: line \d+", "training", said)))


@pytest.mark.parametrize("setup", ["", "set -eu"])
@pytest.mark.parametrize("text", [
    '"$PROBE"', 'A=1 "$PROBE" "$@" # c\n', 'X=1; cd /; B=2 "$PROBE"', 'cd / && "$PROBE"',
    'cd / &&\n  "$PROBE" \\\n --lr 1\n', 'false || "$PROBE"', 'exec "$PROBE"',
    'cat <<EOF\nx\nEOF\n"$PROBE" $(date +%F) "${RESUME_ARGS[@]}"', 'p=$PROBE\n$p'])
def test_the_training_takes_the_place_of_its_shell(bench: Bench, text: str, setup: str) -> None:
    assert bench.as_command(f"export SHELL_PID=$$\n{text}", setup)[2] == "replaced\n"


def test_a_text_that_somebody_has_edited_in_the_script_runs_as_it_stands(bench: Bench) -> None:
    assert bench.as_command("echo one", "")[1] == "one\n"
    script = bench.folder / "job.sbatch"
    script.write_text(script.read_text().replace("SL_COMMAND='echo one'", "SL_COMMAND='echo one two | cat'"))
    assert bench.run("bash", str(script), "attempt")[1] == "one two\n"


def test_an_error_of_the_last_command_names_its_line(bench: Bench) -> None:
    assert bench.as_command("true\ntrue\nnosuch", "") == bench.as_argument("true\ntrue\nnosuch", "")

"""What in an sbatch script works otherwise, or worse, under safelaunch: each with its line, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from safelaunch.core.config.innerlaunchers import several_a_node
from safelaunch.core.config.jobnumbers import tasks_per_node
from safelaunch.core.config.scriptcodes import hidden_codes
from safelaunch.core.config.scriptfolders import fresh_folders
from safelaunch.core.config.shelllines import Statement, Unclosed, split_statements


class Hint(NamedTuple):
    """A pattern of one statement, quotes of the single kind taken out, and what is said of it."""

    pattern: str
    needles: tuple[str, ...]   # one of them is in each statement that is met; quickly said
    text: str


_START = r"(?:srun|torchrun|accelerate|deepspeed|python3?)"
_TRAINS = r"(?:python|torchrun|deepspeed|accelerate|\.sh\b|\.py\b|bash|\$\{?\w*(?:CMD|COMMAND|LAUNCH|cmd|run)|\$@)"
_BLIND = "go to a file of their own, where safelaunch sees no step, no cause and no hang: "
_KEEP = "leave {} out and read safelaunch logs, or write 2>&1 | tee FILE"
_PLAIN = "Slurm's own, without node guards, where PATH is set anew"
HINTS: tuple[Hint, ...] = (
    Hint(rf"\A(?:pdsh|ssh|parallel-ssh|pssh|clush)\s.*{_TRAINS}", ("ssh", "pdsh", "clush"),
         "ranks that ssh starts are outside of Slurm's steps: no node guard ends them, and stacks and why do not see "
         "them; write srun --ntasks-per-node=1 torchrun --nproc_per_node=N … train.py, which starts the same ranks"),
    Hint(r"(?:\A|\s)deepspeed\s.{0,400}--hostfile", ("--hostfile",),
         "deepspeed starts the ranks of other nodes by ssh, outside of Slurm's steps: no node guard ends them; write "
         "srun --ntasks-per-node=1 torchrun --nproc_per_node=N … train.py, which starts the same ranks"),
    Hint(r"\A(?:\S*/)?(?:mpirun|mpiexec|orterun|mpiexec\.hydra)\s", ("mpirun", "mpiexec", "orterun"),
         "mpirun starts the ranks itself: no node guard ends each of them, and a dead one has no name; write srun "
         "--mpi=pmix (or pmi2)"),
    Hint(rf"\A(?:(?:nohup|exec|time|timeout \S+) )*{_START} (?=.*\b(?:python|torchrun|accelerate|deepspeed|bash|sh)\b|"
         rf".*\.(?:py|sh)\b).{{0,4000}} [&1]?>{{1,2}} ?(?!&|/dev/)[^ >]*(?:log|out|err|txt)", (">",),
         f"its lines {_BLIND}{_KEEP.format('the redirection')}"),
    Hint(r"\A(?:(?:nohup|exec|time|timeout \S+) )*srun\s+(?:-[^\s=]+=\S*\s+|-\S+\s+(?:[^-\s]\S*\s+)?)*"
         r"(?:--out\w*[= ]|-o ?)(?!/dev/)\S", ("--out", "-o"),
         f"the tasks' lines {_BLIND}{_KEEP.format('--output')}"),
    Hint(r"\A(?:export )?\w{0,40}(?:TOKEN|API_KEY|SECRET|PASSWORD)=[\"']?[A-Za-z0-9_-]{12,}",
         ("TOKEN=", "API_KEY=", "SECRET=", "PASSWORD="),
         "a secret in the script, which the run folder then holds, too: write it into a file that only you can read, "
         "and $(cat FILE) here"),
    Hint(r"\A(?:module (?:load|add|swap)|ml) .*\bslurm", ("slurm",),
         f"behind it exec srun, timeout … srun and other shells than bash find an srun that is {_PLAIN}; leave it out: "
         "a job has Slurm's commands already"),
    Hint(r"\benv (?:-\S+ )*(?:-i|-|--ignore-environment)\s", ("env ",),
         "what it starts has none of safelaunch's variables: its ranks have no node guards, and are told of no "
         "checkpoint; leave -i out, or pass SAFELAUNCH_RESUME_PATH on"),
)
_NEEDLES = re.compile("|".join(re.escape(needle) for hint in HINTS for needle in hint.needles))
_PAST = re.compile(r"\A(?:exec|nohup|timeout (?:-\S+ )*\S{1,20}|stdbuf \S+|env) srun\b")
_NEW_PATH = re.compile(r"\A(?:export )?PATH=(?!.*\$\{?PATH)|\A(?:module|ml|source|\.)\s")


def script_hints(text: str, file: str, slurm: Mapping[str, Any]) -> list[str]:
    """All that is to be said of a script; `slurm`: what its job asks for. Nothing where it cannot be read."""
    try:
        statements = split_statements(text)
    except Unclosed:
        return []
    tasks = tasks_per_node(slurm, {"with": "script"})
    return [*find_hints(statements, file, tasks), *hidden_codes(text, file)]


def find_hints(statements: Iterable[Statement], file: str, tasks: int = 1) -> list[str]:
    """One sentence for each statement that is met, in the order of their lines; `tasks`: of each node."""
    statements = list(statements)
    found: list[tuple[int, str]] = [*fresh_folders(statements), *several_a_node(statements, tasks)]
    for one in statements:
        if _NEEDLES.search(one.text):
            code = re.sub(r"'[^']*'", "''", one.text) if "'" in one.text else one.text
            found += [(one.number, hint.text) for hint in HINTS if any(needle in code for needle in hint.needles)
                      and re.search(hint.pattern, code, re.DOTALL)]
    past = [one.number for one in statements if "srun" in one.text and _PAST.match(one.text)]
    if past and any(_NEW_PATH.match(one.text) for one in statements):
        found += [(number, f"this srun can be {_PLAIN}; write srun alone") for number in past]
    return [f"{file}:{number}: {text}" for number, text in sorted(found, key=lambda pair: pair[0])]

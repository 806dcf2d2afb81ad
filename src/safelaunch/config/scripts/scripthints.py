"""What in an sbatch script works otherwise, or worse, under safelaunch: each with its line, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from safelaunch.config.scripts.scriptfolders import fresh_folders
from safelaunch.config.shell.innerlaunchers import several_a_node
from safelaunch.config.shell.scriptcodes import hidden_codes
from safelaunch.config.shell.shelllines import MOST_SEARCHED, Statement, Unclosed, split_statements
from safelaunch.launch.jobnumbers import tasks_per_node
from safelaunch.launch.settings import LaunchPlan, SlurmOptions


class Hint(NamedTuple):
    """A pattern of one statement, quotes of the single kind taken out, and what is said of it."""

    pattern: str
    needles: tuple[str, ...]   # one of them is in each statement that is met; quickly said
    text: str
    has_quoted: bool = False   # what stands in single quotes, too


_START = r"(?:srun|torchrun|accelerate|deepspeed|python3?)"
_STARTERS = tuple(_START[len("(?:"):-len("3?)")].split("|"))   # rarer in a script than ">"
_TRAINS = r"(?:python|torchrun|deepspeed|accelerate|\.sh\b|\.py\b|bash|\$\{?\w*(?:CMD|COMMAND|LAUNCH|cmd|run)|\$@)"
# What may stand before a command, and a file behind it that is no device, pipe or other number.
_BEFORE = (r"(?:\( *|(?:do|then|else|if|!|\{|nohup|exec|time|nice|unbuffer|setsid|env|\w+=\S*|stdbuf \S+|"
           r"timeout (?:-\S+ )*\S+) +)*")
_FILE = r"[12&]?>{1,2} ?(?![>&(]|/dev/)\S"
_SSH = r"(?:pdsh|dsh|ssh|rsh|parallel-ssh|pssh|clush|parallel\s(?=.{0,400}(?:--sshlogin|--slf|-S)))"
_BLIND = "go to a file of their own, where safelaunch sees no step, no cause and no hang: "
_KEEP = "leave {} out and read safelaunch logs, or write 2>&1 | tee FILE"
_PLAIN = "Slurm's own, without node guards, where PATH is set anew"
HINTS: tuple[Hint, ...] = (
    Hint(rf"(?:\A{_BEFORE}|\|\s*(?:xargs\s.{{0,200}}?\s)?){_SSH}\s?.{{0,2000}}{_TRAINS}",
         ("sh ", "ssh", "pdsh", "clush", "parallel"),
         "ranks that ssh starts are outside of Slurm's steps: no node guard ends them, and stacks and why do not see "
         "them; write srun --ntasks-per-node=1 torchrun --nproc_per_node=N … train.py, which starts the same ranks",
         has_quoted=True),
    Hint(r"(?:\A|\s)deepspeed\s.{0,400}--hostfile", ("--hostfile",),
         "deepspeed starts the ranks of other nodes by ssh, outside of Slurm's steps: no node guard ends them; write "
         "srun --ntasks-per-node=1 torchrun --nproc_per_node=N … train.py, which starts the same ranks"),
    Hint(rf"\A{_BEFORE}(?:\S*/|\"?\$\((?:which|command -v) )?"
         r"(?:mpirun|mpiexec|orterun|mpiexec\.hydra|mpirun_rsh|p(?:rte)?run|ibrun|horovodrun)[\s)]",
         ("mpirun", "mpiexec", "orterun", "prun", "prterun", "ibrun", "horovodrun"),
         "mpirun and its like start the ranks themselves: no node guard ends each of them, and a dead one has no name; "
         "write srun --mpi=pmix (or pmi2)"),
    Hint(rf"\A{_BEFORE}{_START} (?=.*\b(?:python|torchrun|accelerate|deepspeed|bash|sh)\b|"
         rf".*\.(?:py|sh)\b).{{0,4000}} [&12]?>{{1,2}} ?(?!&|/dev/)[^ >]*(?:log|out|err|txt)", _STARTERS,
         f"its lines {_BLIND}{_KEEP.format('the redirection')}"),
    Hint(rf"\A{_BEFORE}srun\s+(?:-[^\s=]+=\S*\s+|"
         r"-[^\s=]+\s+(?:(?!(?:\S*/)?(?:bash|sh|zsh|env|perl|python[\d.]*)\s)[^-\s]\S*\s+)?)*"
         r"(?:--(?:out|err)\w*[= ]|-[oe] ?)(?!/dev/)\S", ("--out", "-o", "--err", "-e"),
         f"the tasks' lines {_BLIND}{_KEEP.format('--output')} (so with --error)"),
    Hint(r"\A(?:export\s+)?(?:SLURM_STD(?:OUT|ERR)MODE|SRUN_(?:OUTPUT|ERROR))=(?!/dev/)\S", ("SLURM_STD", "SRUN_"),
         f"the tasks' lines {_BLIND}{_KEEP.format('--output')} (so with --error)"),
    Hint(rf"\A(?:(?:then|do|else)\s+)?exec\s+{_FILE}", ("exec",),
         f"from here on all lines {_BLIND}leave it out, or write exec > >(tee FILE) 2>&1"),
    Hint(rf"\A\(.{{0,4000}}\b{_START}\s.{{0,4000}}\)\s*{_FILE}", _STARTERS,
         f"its lines {_BLIND}{_KEEP.format('the redirection')}"),
    Hint(r"\A(?:export )?\w{0,40}(?:TOKEN|API_KEY|SECRET|PASSWORD)=[\"']?[A-Za-z0-9_-]{12,}|\bwandb login [\da-f]{32}|"
         r"\s--?(?:token|api[_-]?key|password)[= ][\"']?[A-Za-z0-9_-]{12,}|\b(?:hf_|ghp_|sk-|glpat-)[A-Za-z0-9_-]{16,}",
         ("TOKEN=", "API_KEY=", "SECRET=", "PASSWORD=", "login ", "-token", "-api", "-password", "hf_", "ghp_", "sk-",
          "glpat-"),
         "a secret in the script, which the run folder then holds, too: write it into a file that only you can read, "
         "and $(cat FILE) here"),
    Hint(r"\A(?:module (?:load|add|swap)|ml) .*\bslurm", ("slurm",),
         f"behind it exec srun, timeout … srun and other shells than bash find an srun that is {_PLAIN}; leave it out: "
         "a job has Slurm's commands already"),
    Hint(r"\benv (?:-\S+ )*(?:-i|-|--ignore-environment)\s", ("env ",),
         "what it starts has none of safelaunch's variables: its ranks have no node guards, and are told of no "
         "checkpoint; leave -i out, or pass SAFELAUNCH_RESUME_PATH on"),
)
_TRAINING = re.compile(rf"(?:\A|\s){_START}\s")
_GROUP = re.compile(r"(?:(?:(\S+)\s*\(\)|function\s+(\S+))?\s*\{|for|while|until)(?:\s|\Z)")
_GROUP_END = re.compile(r"(?:\}|done)(?=\s|>|\Z)")
_TO_FILE = re.compile(rf"(?:\}}|done)\s*{_FILE}")
_TO_LOG = re.compile(rf"\s{_FILE}[^ >]*(?:log|out|err|txt)")
_SHELL_FILE = re.compile(
    rf"{_BEFORE}srun\s.{{0,400}}?\b(?:ba)?sh\s+-\w*c\s+(['\"]).{{0,4000}}?\b(?:python|torchrun|accelerate|deepspeed)"
    r".{0,4000}?"
    r"[ \d&]>{1,2} ?(?![>&(]|/dev/)[^ >]*(?:log|out|err|txt|PROCID)", re.DOTALL)
_NEEDLES = re.compile("|".join(re.escape(needle) for hint in HINTS for needle in hint.needles))
_PAST = re.compile(r"\A(?:exec|nohup|timeout (?:-\S+ )*\S{1,20}|stdbuf \S+|env) srun\b")
_NEW_PATH = re.compile(r"\A(?:export )?PATH=(?!.*\$\{?PATH)|\A(?:module|ml|source|\.)\s")


def script_hints(text: str, file: str, slurm: SlurmOptions) -> list[str]:
    """All that is to be said of a script; `slurm`: what its job asks for. Nothing where it cannot be read."""
    try:
        statements = split_statements(text)
    except Unclosed:
        return []
    tasks = tasks_per_node(slurm, LaunchPlan("script", None, 0))
    return [*find_hints(statements, file, tasks), *hidden_codes(text, file)]


def find_hints(statements: Iterable[Statement], file: str, tasks: int = 1) -> list[str]:
    """One sentence for each statement that is met, in the order of their lines; `tasks`: of each node."""
    statements = [one._replace(text=one.text[:MOST_SEARCHED]) for one in statements]
    found: list[tuple[int, str]] = [*fresh_folders(statements), *several_a_node(statements, tasks)]
    for one in statements:
        if _NEEDLES.search(one.text):
            code = re.sub(r"'[^']*'", "''", one.text) if "'" in one.text else one.text
            found += [(one.number, hint.text) for hint in HINTS if any(needle in code for needle in hint.needles)
                      and re.search(hint.pattern, one.text if hint.has_quoted else code, re.DOTALL)]
    found += _hidden_inside(statements)
    past = [one.number for one in statements if "srun" in one.text and _PAST.match(one.text)]
    if past and any(_NEW_PATH.match(one.text) for one in statements):
        found += [(number, f"this srun can be {_PLAIN}; write srun alone") for number in past]
    return [f"{file}:{number}: {text}" for number, text in sorted(dict.fromkeys(found), key=lambda pair: pair[0])]


def _hidden_inside(statements: list[Statement]) -> list[tuple[int, str]]:
    """Output that goes to a file within `srun bash -c '…'`, or behind the end of a group or loop that starts ranks."""
    found, opened = [], list[tuple[str, bool]]()   # of each group that is open: its function, whether it trains
    text = f"its lines {_BLIND}{_KEEP.format('the redirection')}"
    training: set[str] = set()   # functions that start one
    for one in statements:
        group = _GROUP.match(one.text)
        opened += [(group[1] or group[2] or "", False)] if group else []
        starts = _TRAINING.search(one.text) is not None
        opened = [(name, is_met or starts) for name, is_met in opened]
        name, is_of_ranks = opened.pop() if opened and _GROUP_END.match(one.text) else ("", False)
        training |= {name} if is_of_ranks else set()
        is_call = one.text.split(None, 1)[0] in training and _TO_LOG.search(one.text)
        if _SHELL_FILE.match(one.text) or (is_of_ranks and _TO_FILE.match(one.text)) or is_call:
            found.append((one.number, text))
    return found

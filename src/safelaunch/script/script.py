"""The job script's text: fragments joined by choice, and their two marked blocks filled with a plan's values.

No value can become code: directives are quoted for sbatch's own reader of `#SBATCH` lines, values for bash. What
neither can hold is refused. Measured with Slurm 22.05 (tests/templates/test_sbatch_parses_back.py):
- in a `#SBATCH` line quotes group, a backslash takes the next character as it is (within both kinds of quotes, too),
  and an unquoted # starts a comment; any other character is itself
- sbatch obeys `#PBS` and `#BSUB` lines anywhere in the script, also in the middle of a quoted value
- it refuses a script that holds a carriage return before a newline
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from safelaunch.config.handed import BASHS_OWN, MAX_VALUE_BYTES, SCRIPT_MAX_BYTES, unfit, unfit_for_output
from safelaunch.errors import TemplateError
from safelaunch.launch import containers
from safelaunch.run.plan import RESIZED, Plan
from safelaunch.script import scriptparts
from safelaunch.script.lastcommand import find_last
from safelaunch.slurm.sbatchoptions import FIRST_JOB_ONLY

_SMALL = "abcdefghijklmnopqrstuvwxyz"
_BARE = f"{_SMALL}{_SMALL.upper()}0123456789_@%+=:,./[]-"   # a value of these needs no quotes
_CONTROL = "[\x01-\x08\x0b-\x1f\x7f\udc80-\udcff]{1,64}"   # the last: bytes that are not UTF-8 (PEP 383)

# How long before the time limit Slurm warns the script: time for a checkpoint, but never a good part of a short job.
_WARN_SHARE, _WARN_MIN_S, _WARN_UNKNOWN_S = 0.05, 30, 120


def render(
    template: str | Mapping[str, str], plan: Plan, *, python: str, library: tuple[str, ...],
    srun: tuple[str, ...] = ("srun",), umask: int | None = None,
    is_complete: Callable[[str], bool] = lambda text: False, cluster: str = "",
) -> str:
    """The sbatch script of a plan.

    `template`: a site's own one as a text, or the fragments of templates/slurm by their names (script/scriptparts.py).
    `python` runs the supervisor on the batch host. `library` are the package folders that it copies to local disk.
    `umask` is the training's in every job, also in those that the supervisor submits; None = that of its first job.
    `is_complete` is lastcommand.find_last's. `cluster` is Slurm's ClusterName, on which alone a job of the run may
    start an attempt; "" = not known. Raises TemplateError when the template lacks a block or a value cannot be held.
    """
    text = template if isinstance(template, str) else scriptparts.join(template, plan)
    used = _names(text)   # nobody reads past twenty empty values
    blocks = {"directives": directives(plan),
              "values": [line for line in _values(plan, python, library, srun, umask, is_complete, cluster)
                         if line.partition("=")[0] in used]}
    return "".join("".join(f"{line}\n" for line in blocks[part]) if number % 2 else part
                   for number, part in enumerate(_split(text)))


def directives(plan: Plan) -> list[str]:
    """`#SBATCH` lines: safelaunch's own first, then the user's in their order."""
    rows: list[tuple[str, str | None]] = [
        ("job-name", plan.job_name),
        ("output", _output(plan.run_dir)),
        ("open-mode", "append"),
        ("no-requeue", None),   # safelaunch restarts; a requeue would forget failed nodes and the queue's age
        ("no-kill", None),      # a dead node must not take the allocation with it
        ("signal", f"B:USR2@{warn_before_s(plan)}"),
        *(("nodes", str(plan.allocated_nodes)) if row[0] == "nodes" else row
          for row in plan.sbatch if row[0] not in FIRST_JOB_ONLY),
    ]
    given = {name for name, _ in plan.sbatch}
    if "nodes" not in given:
        rows.append(("nodes", str(plan.allocated_nodes)))
    # Else the job gets one CPU a node, and srun is refused more tasks. A script has asked for what it needs itself.
    if not plan.is_script and not given & {"ntasks-per-node", "ntasks-per-gpu"}:
        rows.append(("ntasks-per-node", str(plan.ntasks_per_node)))
    return [_directive(name, value) for name, value in rows]


def _output(run_dir: str) -> str:
    """The pattern of the job's own output file; sbatch(1), filename pattern."""
    if fault := unfit_for_output(run_dir):
        raise TemplateError(f"run_dir: {_shown(run_dir)} {fault}")
    return f"{run_dir.replace('%', '%%')}/slurm-%j.out"


def first_job_options(plan: Plan, is_singleton: bool = True, behind: Sequence[str] = ()) -> list[str]:
    """Options of the first sbatch alone: a successor must not wait for the same date or job, or be held. With
    `is_singleton` Slurm never runs two first jobs at once. `behind`: jobs of other runs to wait for. sbatch obeys only
    the last --dependency, so there is one.
    """
    rows = {name: value for name, value in plan.sbatch if name in FIRST_JOB_ONLY}
    own = rows.pop("dependency", None)
    waits = [*([own] if own else []), *([f"afterany:{':'.join(behind)}"] if behind else []),
             *(["singleton"] if is_singleton else [])]
    return [*([f"--dependency={','.join(waits)}"] if waits else []),
            *(f"--{name}" if value is None else f"--{name}={value}" for name, value in rows.items())]


def quote_directive(value: str) -> str:
    """`value` as sbatch reads it back from a `#SBATCH` line."""
    _check(value)
    if not value.isprintable() and (found := re.search("[\x00-\x1f\x7f]", value)):
        raise TemplateError(f"a #SBATCH line cannot hold the control character {found[0]!r} in {_shown(value)}")
    if value and not value.strip(_BARE):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def quote_bash(value: str) -> str:
    """`value` in bash's single quotes, control and odd bytes in $'…'; no line of it starts as a directive does."""
    text = "'" + value.replace("'", "'\\''") + "'"
    if not text.isprintable():
        text = re.sub(_CONTROL, lambda found: f"'$'{''.join(map(_octal, found[0]))}''", text)
    return re.sub("\n#(?=[A-Z])", "\n''#", text) if "\n#" in text else text


def warn_before_s(plan: Plan) -> int:
    """Seconds before the time limit at which Slurm signals the script."""
    limit_s = time_limit_s(dict(plan.sbatch).get("time"))
    if limit_s is None:
        return _WARN_UNKNOWN_S
    return int(max(_WARN_MIN_S, min(plan.kill_switch.grace_s, limit_s * _WARN_SHARE)))


def time_limit_s(text: str | None) -> int | None:
    """Seconds of a --time value: "minutes", "minutes:seconds", "h:m:s", "days-hours[:m[:s]]"; None = none or other."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text or "")
    if not match:
        return None
    days, *rest = (None if part is None else int(part) for part in match.groups())
    first, second, third = (part for part in rest)
    if days is not None:
        return days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)


def _values(
    plan: Plan, python: str, library: tuple[str, ...], srun: tuple[str, ...], umask: int | None,
    is_complete: Callable[[str], bool], cluster: str,
) -> list[str]:
    last = "" if plan.is_script else _last(plan.command, is_complete)
    scalars: list[tuple[str, str | int | None]] = [
        ("RUN_ID", plan.run_id), ("RUN_DIR", plan.run_dir), ("CLUSTER", cluster), ("KILL_FILE", plan.kill_file),
        ("NODES", plan.nodes), ("TASKS_PER_NODE", plan.ntasks_per_node),
        ("TASKS", plan.numbers.tasks), ("LAYOUT", plan.numbers.layout),
        ("CPUS_PER_TASK", plan.cpus_per_task),
        ("LAUNCHER", plan.launch.by), ("NPROC_PER_NODE", plan.launch.nproc_per_node or plan.gpus_per_node),
        ("TEE", plan.launch.tee), ("TORCHRUN", "direct" if plan.launch.is_direct else "agent"),
        ("KILL_ON_BAD_EXIT", plan.srun.kill_on_bad_exit),
        ("LEASE_S", f"{plan.lease_s:g}"), ("PRESERVE_S", int(plan.preserve.for_s)),
        ("PYTHON", python), ("LOGIN_SHELL", "yes" if plan.launch.login_shell else ""),
        ("UMASK", "" if umask is None else f"{umask:04o}"),
        *_container(plan),
        ("JOB_NAME", plan.own.job_name or plan.name),
        ("COMMAND", plan.command), ("LAST", last), ("SETUP", plan.setup),
        ("BEFORE_RESIZE", plan.before_resize),
    ]
    extra = plan.srun.words if plan.is_script else plan.srun.extra
    arrays = (("SRUN", srun), ("ARGS", plan.own.args), ("SRUN_EXTRA", (*extra, *_plugin_words(plan))),
              ("NUMBERS", plan.numbers.variables), ("LAUNCH_ARGS", plan.launch.args), ("LIBRARY", library),
              ("ENV", _variables((*plan.env, *_inside(plan)))))
    most_bytes = {"COMMAND": SCRIPT_MAX_BYTES} if plan.is_script else {}   # a script's text lies in a file
    return [*(f"SL_{name}={_scalar(value, most_bytes.get(name, MAX_VALUE_BYTES))}" for name, value in scalars),
            *(f"SL_{name}=({_words(words)})" for name, words in arrays)]


def _own_folders(plan: Plan) -> list[str]:
    """Folders of the run that a container must have."""
    return [plan.run_dir, plan.kill_file.rpartition("/")[0] or "/", *_checkpoint_folders(plan)]


def _checkpoint_folders(plan: Plan) -> list[str]:
    """Those that no mount of the working directory brings."""
    resume = plan.resume.dir or ""
    both = [resume, f"{resume.rstrip('/')}{RESIZED}"] if plan.before_resize else [resume]
    return both if resume.startswith("/") else []


def _container(plan: Plan) -> list[tuple[str, str]]:
    """The words before the command, one a line; `inside` where srun's plugin starts the container."""
    box = plan.container
    if box is None:
        return [("CONTAINER", ""), ("CONTAINER_NEEDS", ""), ("WORKDIR", "")]
    own, made = _own_folders(plan), _checkpoint_folders(plan)
    words = containers.start_words(box, own, bool(plan.gpus_per_node)) or ("inside",)
    return [("CONTAINER", "\n".join(words)), ("CONTAINER_NEEDS", "\n".join(containers.needs(box, own, made))),
            ("WORKDIR", box.workdir or "")]


def _plugin_words(plan: Plan) -> tuple[str, ...]:
    box = plan.container
    return () if box is None else containers.srun_words(box, _own_folders(plan), [name for name, _ in plan.env])


def _inside(plan: Plan) -> list[tuple[str, str]]:
    """Variables that are set once more behind the image's own; of `env:` not what means the host's files."""
    if plan.container is None:
        return []
    outside = [pair for pair in plan.env if pair[0] not in containers.OUTSIDE_ONLY]
    return [(f"SAFELAUNCH_IN_{name}", value) for name, value in {**dict(outside), **dict(plan.container.env)}.items()]


def _last(command: str, is_complete: Callable[[str], bool]) -> str:
    """The answer of find_last, if there is room for it; without it a shell stays beside the training."""
    last = find_last(command, is_complete)
    return "" if unfit(last + command[len(last):] + "SL_LAST ") else last


def _variables(env: Iterable[tuple[str, str]]) -> list[str]:
    """`NAME=value` words; only the training's own shell exports them, so that they cannot change the script."""
    for name, _ in env:
        if not (name.isascii() and name.isidentifier()) or name in BASHS_OWN:
            raise TemplateError(f"env.{name}: bash does not hand this variable to the training")
    return [f"{name}={value}" for name, value in env]


def _directive(name: str, value: str | None) -> str:
    if not name or name[0] not in _SMALL or name.strip(f"{_SMALL}0123456789-"):
        raise TemplateError(f"not the name of an sbatch option: {_shown(name)}")
    return f"#SBATCH --{name}" if value is None else f"#SBATCH --{name}={quote_directive(value)}"


def _check(value: str, most_bytes: int = MAX_VALUE_BYTES) -> None:
    """Raise TemplateError for what no script can hold."""
    if fault := unfit(value, most_bytes):
        raise TemplateError(f"a script cannot hold {_shown(value)}: it {fault}")


def _shown(value: str) -> str:
    return repr(value if len(value) <= 80 else f"{value[:79]}…")


def _octal(char: str) -> str:
    code = ord(char)
    return f"\\{code if code < 0x80 else code - 0xDC00:03o}"


def _scalar(value: str | int | None, most_bytes: int) -> str:
    return str(value) if isinstance(value, int) else _quote(value or "", most_bytes)


def _words(words: Iterable[str]) -> str:
    return " ".join(map(_quote, words))


def _quote(value: str, most_bytes: int = MAX_VALUE_BYTES) -> str:
    _check(value, most_bytes)
    return quote_bash(value)


@lru_cache(2)
def _names(template: str) -> frozenset[str]:
    return frozenset(re.findall("SL_[A-Z_]{1,40}", template))


@lru_cache(2)   # all points of a sweep have one template
def _split(template: str) -> tuple[str, ...]:
    """Its text, the name of a block, text, the name of the other one, and text."""
    lines = template.split("\n")
    (first, end, name), (start, last, other) = sorted(
        (*_block(lines, name), name) for name in ("directives", "values"))
    head, between = ("".join(f"{line}\n" for line in part) for part in (lines[:first], lines[end:start]))
    return head, name, between, other, "\n".join(lines[last:])


def _block(lines: Sequence[str], name: str) -> tuple[int, int]:
    """The first line inside of a block, and the one that ends it."""
    first = 0
    for number, line in enumerate(lines):
        mark = line[:6 + len(name)]
        if mark == f"# >>> {name}" and not first and not line[len(mark):][:1].isalnum():
            first = number + 1
        elif mark == f"# <<< {name}" and first and not line[len(mark):][:1].isalnum():
            return first, number
    raise TemplateError(f"the template has no block '# >>> {name}' … '# <<< {name}'")

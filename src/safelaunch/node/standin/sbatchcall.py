"""The words of an sbatch command line, and whether they submit the script itself.

Pure; standard library, Python 3.9.
"""

from __future__ import annotations

from safelaunch.node.standin.links import ANY, NOT_OK, OK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Optional

OWN = ("slurm_script", "job.sbatch")   # names that the script, or the job file around it, has on the node
# With these a self-submission is no next link: it is to start at another time or place, several times, or not at all.
OF_ITS_OWN = ("array", "begin", "clusters", "hold", "wait", "test-only", "help", "usage", "version", "deadline")
FOLLOWED = ("job-name", "output", "error", "open-mode")   # by the next link
SILENT = (*FOLLOWED, "dependency", "export", "parsable", "quiet", "verbose", "kill-on-invalid-dep", "requeue",
          "no-requeue", "chdir", "wrap")
_WHEN = {"after": ANY, "afterany": ANY, "singleton": ANY, "afterok": OK, "afternotok": NOT_OK}
_NOT_ITS_OWN = (   # set by Slurm, by safelaunch or by a shell for each job anew
    r"(?:SLURM_|SLURMD_|SAFELAUNCH_|BASH_FUNC_(?:srun|sbatch|scontrol|squeue|sacct|scancel)%%|WANDB_RUN_ID\Z|"
    r"WANDB_RESUME\Z|(?:PWD|OLDPWD|SHLVL|_|BASH_ENV|PYTHONUNBUFFERED|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|"
    r"GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK)\Z)")
_WRAPPED = ("srun", "sbatch", "scontrol", "squeue", "sacct", "scancel")
_ADDED = ("SAFELAUNCH_", *("BASH_FUNC_%s%%%%" % name for name in _WRAPPED))


class Unreadable(ValueError):
    """An option of another release or of a plugin: where the script stands nobody can tell."""


class SbatchCall:
    """sbatch's options by long name, the last one wins ("" where it has no value), the script and its arguments."""

    def __init__(self, options: dict[str, str], rest: list[str]) -> None:
        self.options, self.script, self.args = options, (rest[0] if rest else None), rest[1:]


def parse(argv: Sequence[str], takes: Mapping[str, str], letters: Mapping[str, str]) -> SbatchCall:
    """The call; `takes`: none, optional, required or count by long name; raises Unreadable."""
    options: dict[str, str] = {}
    left = list(argv)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left.pop(0)
        if word == "--":
            break
        for name, value in _long(word, left, takes) if word.startswith("--") else _short(word, left, takes, letters):
            options[name] = value
    return SbatchCall(options, left)


def _long(word: str, left: list[str], takes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    name, equals, value = word[2:].partition("=")
    found = [name] if name in takes else [known for known in takes if known.startswith(name)]
    if len(found) != 1:
        raise Unreadable(word)
    if not equals and takes[found[0]] in ("required", "count"):
        value = _next(left)
    yield found[0], value


def _short(word: str, left: list[str], takes: Mapping[str, str], letters: Mapping[str, str]
           ) -> Iterator[tuple[str, str]]:
    rest = word[1:]
    while rest:
        letter, rest = rest[0], rest[1:]
        if letter not in letters:
            raise Unreadable(word)
        name = letters[letter]
        if takes[name] == "none":
            yield name, ""
            continue
        yield name, rest or (_next(left) if takes[name] != "optional" else "")
        return


def _next(left: list[str]) -> str:
    if not left:
        raise Unreadable("an option without its value")
    return left.pop(0)


def waits_for(text: str, own: Collection[str]) -> Optional[str]:
    """ANY, OK or NOT_OK: after which end of the job `own` (its ids) the dependency lets a next one start; None: it
    waits for something else, too.
    """
    when = ANY
    for term in filter(None, text.replace("?", ",").split(",")):
        kind, _, ids = term.partition(":")
        if kind not in _WHEN or {one.partition("+")[0].partition("_")[0] for one in ids.split(":") if one} - set(own):
            return None
        when = _WHEN[kind] if _WHEN[kind] != ANY else when
    return when


def unfollowed(options: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    """Options by which a self-submission asks for another job than the run's, as they would be written."""
    return ["--%s%s" % (name, "=" + value if value else "") for name, value in options.items()
            if name not in SILENT and own.get(name) != value]


def exported(env: Mapping[str, str], start: Mapping[str, str], before: Mapping[str, str], asked: str, bin_dir: str
             ) -> tuple[dict[str, str], list[str]]:
    """(variables, names that are gone) by which a next link's environment differs from the run's.

    `env`: that of the sbatch call; `start`: that with which the script began, `before`: the part of it that is of the
    link before; `asked`: --export, which is ALL, NONE, or names and values.
    """
    import re  # 5 ms, which another job's submission does not need

    terms = [term for term in re.split(r",(?=\w+(?:=|,|\Z))", asked) if term] or ["ALL"]
    named = {}
    for term in terms:
        name, equals, value = term.partition("=")
        if equals or name in env:
            named[name] = value if equals else env[name]
    if "ALL" not in terms:
        return named, []
    now, then = without(env, bin_dir), without(start, bin_dir)
    is_own = [name for name in now if not re.match(_NOT_ITS_OWN, name) and (now[name] != then.get(name))]
    gone = [name for name in then if name not in now and not re.match(_NOT_ITS_OWN, name)]
    kept = {name: value for name, value in before.items() if name in now}
    return {**kept, **{name: now[name] for name in is_own}, **named}, gone


def without(env: Mapping[str, str], bin_dir: str, added: Collection[str] = ()) -> dict[str, str]:
    """An environment without what safelaunch has put into it: for another job."""
    kept = {name: value for name, value in env.items()
            if not name.startswith(_ADDED) and name not in added}
    if kept.get("BASH_ENV", "").startswith(bin_dir.rpartition("/")[0] + "/"):
        del kept["BASH_ENV"]
    if "PATH" in kept:
        kept["PATH"] = ":".join(folder for folder in kept["PATH"].split(":") if folder != bin_dir)
    return kept


def with_own_ids(argv: Sequence[str], links: Collection[str], job: str) -> list[str]:
    """sbatch's words with the job's own id for those of its links: Slurm knows no links."""
    if not links:
        return list(argv)
    import re

    return [re.sub(r"(?<![0-9])(?:%s)(?![0-9])" % "|".join(links), job, word) for word in argv]

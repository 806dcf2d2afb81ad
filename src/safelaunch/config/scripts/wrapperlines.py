"""#PBS and #BSUB lines of a script, as sbatch reads them: anywhere in the script, and more than #SBATCH lines.

Each row is what sbatch 22.05 makes of such a line (tests/pure/config/test_wrapperlines.py has what `scontrol show
job` said). With one #BSUB line sbatch reads no #PBS line. Some options it takes and does nothing with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from safelaunch.base.yaml.yamlnodes import Origin
from safelaunch.config.scripts.sbatchlines import split_lines, split_words
from safelaunch.slurm.sbatchoptions import GivenOption

_PBS = {"-A": "account", "-a": "begin", "-e": "error", "-J": "array", "-M": "mail-user", "-N": "job-name",
        "-o": "output", "-p": "nice", "-q": "partition", "-t": "array"}
_PBS_IDLE = ("-c", "-C", "-j", "-k", "-r", "-S", "-u", "-v", "-h", "-I", "-V", "-z")
_PBS_FLAGS = ("-h", "-I", "-V", "-z")
_PBS_MAIL = {"b": "BEGIN", "e": "END", "a": "FAIL"}
_RESOURCES = {"walltime": "time", "cput": "time", "mem": "mem", "file": "tmp", "nice": "nice"}
_BSUB = {"-cwd": "chdir", "-e": "error", "-J": "job-name", "-m": "nodelist", "-M": "mem-per-cpu", "-n": "ntasks",
         "-o": "output", "-q": "partition", "-W": "time"}
_UNKNOWN = ("sbatch does not know {} in a {} line, and would refuse the script; take it out, or write it as a #SBATCH "
            "line")
_IDLE = "sbatch reads {} in {} lines, and does nothing with it; write it as a #SBATCH line if it matters"


# (word, option's name or "" for one that does nothing, value); without a word: a fault, in place of the value
_Found = tuple[str, str, "str | None"]
_Reader = Callable[[list[str]], Iterator[_Found]]


class WrapperOptions(NamedTuple):
    """The options of the lines, in order, and what is to be said of them."""

    options: list[GivenOption]
    notes: list[str]


def read_wrapper_lines(text: str, layer: str, file: str) -> WrapperOptions:
    """Those of #BSUB if there is one, else those of #PBS."""
    if "#PBS" not in text and "#BSUB" not in text:
        return WrapperOptions([], [])
    lines = split_lines(text)
    for magic, read in (("#BSUB", _read_bsub), ("#PBS", _read_pbs)):
        found = [(number, line[len(magic):]) for number, line in enumerate(lines, 1) if line.startswith(magic)]
        if found:
            return _read_lines(found, magic, read, layer, file)
    return WrapperOptions([], [])


def _read_lines(lines: Sequence[tuple[int, str]], magic: str, read: _Reader, layer: str, file: str) -> WrapperOptions:
    options: list[GivenOption] = []
    idle: dict[str, int] = {}
    for number, rest in lines:
        place = Origin(layer, file, number, 1)
        try:
            found = list(read(split_words(rest)))
        except ValueError as fault:
            found = [("", magic, str(fault))]
        for word, name, value in found:
            if not word:
                options.append(GivenOption(place, magic, name, None, value or ""))
            elif name:
                options.append(GivenOption(place, f"{magic} {word}", name, value))
            else:
                idle.setdefault(word, number)
    notes = [f"{file}:{number}: {_IDLE.format(word, magic)}" for word, number in idle.items()]
    if options:
        notes.insert(0, f"{file}:{lines[0][0]}: {magic} lines are read, as sbatch reads them")
    return WrapperOptions(options, notes)


def _read_pbs(words: list[str]) -> Iterator[_Found]:
    rest = iter(words)
    for given in rest:
        letter = given[:2]
        if letter in _PBS_FLAGS:
            yield letter, "", None
            continue
        if letter not in _PBS and letter not in (*_PBS_IDLE, "-l", "-m", "-W"):
            yield "", given, _UNKNOWN.format(given, "#PBS")
            continue
        value = given[2:] or next(rest, None)
        if value is None:
            yield "", letter, "needs a value"
        elif letter == "-l":
            yield from _read_resources(value)
        elif letter == "-m":
            kinds = [_PBS_MAIL[char] for char in "bea" if char in value]
            yield (letter, "mail-type", ",".join(kinds)) if kinds else (f"{letter} {value}", "", None)
        elif letter == "-W":
            depends = value.removeprefix("depend=")
            yield (letter, "dependency", depends) if depends != value else (f"{letter} {value}", "", None)
        elif letter in _PBS_IDLE:
            yield f"{letter} {value}", "", None
        else:
            yield letter, _PBS[letter], value


def _read_resources(value: str) -> Iterator[_Found]:
    """`nodes=2:ppn=4,walltime=1:00:00`, and PBS Pro's `select=2:ncpus=8:mpiprocs=4`."""
    for part in value.split(","):
        name, _, text = part.partition("=")
        if name in _RESOURCES:
            yield f"-l {name}", _RESOURCES[name], _size(text) if name in ("mem", "file") else text
        elif name == "nodes":
            yield from _read_nodes(text)
        elif name in ("select", "ncpus", "mpiprocs"):
            yield from _read_chunks(part)
        elif name in ("naccelerators", "accelerators", "accelerator"):
            yield f"-l {name}", "gpus-per-node", "1" if text == "true" else text
        else:
            yield f"-l {part}", "", None


def _read_nodes(text: str) -> Iterator[_Found]:
    """A number, or names joined by +, each with :ppn=N and :gpus=N."""
    count, tasks, names = 0, 0, []
    for chunk in text.split("+"):
        first, *features = chunk.split(":")
        many = int(first) if first.isdecimal() else 1
        facts = dict(feature.partition("=")[::2] for feature in features)
        if set(facts) - {"ppn", "gpus"} or not all(number.isdecimal() for number in facts.values()):
            yield "", "#PBS", _UNKNOWN.format(f"-l nodes={text}", "#PBS")
            return
        count, tasks = count + many, tasks + many * int(facts.get("ppn", "1"))
        names += [] if first.isdecimal() else [first]
        if "gpus" in facts:
            yield "-l nodes", "gpus-per-node", facts["gpus"]
    yield "-l nodes", "nodes", str(count)
    if names:
        yield "-l nodes", "nodelist", ",".join(names)
    if "ppn" in text:
        yield "-l nodes", "ntasks", str(tasks)


def _read_chunks(part: str) -> Iterator[_Found]:
    """One chunk of PBS Pro: mpiprocs tasks a node, which share its ncpus."""
    if "+" in part:
        yield "", "#PBS", _UNKNOWN.format(f"-l {part}", "#PBS")
        return
    facts = dict(one.partition("=")[::2] for one in part.split(":"))
    nodes, cpus, tasks = (facts.pop(name, "") for name in ("select", "ncpus", "mpiprocs"))
    if not all(number.isdecimal() or not number for number in (nodes, cpus, tasks)):
        yield "", "#PBS", _UNKNOWN.format(f"-l {part}", "#PBS")
        return
    if nodes:
        yield "-l select", "nodes", nodes
    if tasks:
        yield "-l mpiprocs", "ntasks-per-node", tasks
    each = int(cpus or 0) // int(tasks or 1) if tasks not in ("", "0") else 0
    if each:
        yield "-l ncpus", "cpus-per-task", str(each)
    elif cpus:
        yield "-l ncpus", "mincpus", cpus
    if "mem" in facts:
        yield "-l mem", "mem", _size(facts.pop("mem"))
    for name, text in facts.items():
        yield f"-l {name}={text}", "", None


def _size(text: str) -> str:
    """2gb as Slurm writes it: 2G."""
    return re.sub(r"(?i)([kmgt])b\Z", lambda found: found[1].upper(), text)


def _read_bsub(words: list[str]) -> Iterator[_Found]:
    rest = iter(words)
    for given in rest:
        if given == "-x":
            yield given, "exclusive", None
            continue
        word = next((one for one in ("-cwd", *_BSUB) if given.startswith(one)), None)
        value = (given[len(word):] or next(rest, None)) if word else None
        if word is None or value is None:
            yield "", given, _UNKNOWN.format(given, "#BSUB")
        elif word == "-M":   # kB, as sbatch takes them; at least 1 MB
            yield word, _BSUB[word], str(-(-int(value) // 1024)) if value.isdecimal() else value
        elif word == "-n":
            yield word, _BSUB[word], value.rpartition(",")[2]
        else:
            yield word, _BSUB[word], ",".join(value.split()) if word == "-m" else value

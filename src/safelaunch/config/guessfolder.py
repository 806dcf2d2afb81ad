"""Where a training saves its checkpoints, as its shell code lets one guess: by options, variables and file patterns.

A guess is only said, with its line: a folder that is none would be worse than none (decide.facts.advance).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from safelaunch.config.shell.shelllines import MOST_SEARCHED, Statement, Unclosed, split_statements

READ, SAVED, WRITTEN = 3, 2, 1   # how much a place tells: it is read back, it is for checkpoints, it is for all output

_WORD = r"(?P<value>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"';|&()<>`]+)"
_KEPT = r"(?:save|checkpoints?|ckpts?|snapshots?)"
_DIR = r"(?:dir|path|folder|root)"
_SAVE = rf"(?:{_KEPT}(?:[-_.]?{_DIR})?|{_DIR}[-_.]{_KEPT}|default[-_]root[-_]dir|dirpath|dump[-_]folder)"
_OUT = rf"(?:out(?:put)?(?:[-_.]?{_DIR})?|(?:exp(?:eriment)?|work|results?|run|model)[-_]?dir)"
_RESUME = rf"(?:resume|auto[-_]resume)(?:[-_]from)?(?:[-_](?:checkpoint|{_DIR}))?"
_SUFFIX = r"(?:pth?|pth\.tar|ckpt|safetensors|distcp)"
_STEP = r"(?:checkpoint|ckpt|(?:global_?)?step|iter|epoch)"
_PATH = re.compile(r"[\w./~${}*:-]+")
_GLOB = re.compile(rf"\*[^*]*\.{_SUFFIX}\b|\A{_STEP}[-_]?\*", re.IGNORECASE)   # one part of a path
_FIND = re.compile(rf"\bfind\s+{_WORD}\s.*-name\s+['\"]?(?:[\w.*-]*\.{_SUFFIX}\b|{_STEP}[-_]?\*)", re.IGNORECASE)
_LIST = re.compile(rf"\bls\s+(?:-\w+\s+)*(?P<value>[\w./~${{}}-]*{_KEPT}[\w./${{}}-]*)(?=\s|\||\)|\Z)", re.IGNORECASE)


def _option(names: str) -> re.Pattern[str]:
    """--save-dir X, --save_dir=X, trainer.save_dir=X, +out_dir=X."""
    return re.compile(rf"(?<=\s)(?:--?(?:[\w-]+\.)*{names}(?:=|\s+)|\+{{0,2}}(?:\w+\.)*{names}=)(?!-){_WORD}",
                      re.IGNORECASE)


_OPTIONS = ((_option(_SAVE), SAVED), (_option(_OUT), WRITTEN), (_option(_RESUME), READ),
            (_option(rf"(?:load|restore)(?:[-_]from)?(?:[-_]{_DIR})?"), 0))   # 0: perhaps weights of another training
_ASSIGNED = re.compile(rf"(?:(?:export|readonly|local)\s+)?(?P<name>\w+)={_WORD}\Z")
_NAMED = tuple((re.compile(rf"(?:\A|_){names}\Z", re.IGNORECASE), weight)
               for names, weight in ((_SAVE, SAVED), (_OUT, WRITTEN)))
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_CHANGES = re.compile(r"[`*?%]|\$(?:[({@#?0-9$]|\Z)|SLURM_(?:JOB|ARRAY|RESTART|PROC|NODE)|RANDOM")
_IS_CHECKPOINT = re.compile(rf"\.{_SUFFIX}\Z|(?:\A|/){_STEP}[-_]?\d[^/]*\Z", re.IGNORECASE)
_IS_FILE = re.compile(r"\.(?:json|ya?ml|log|txt|out|err|csv|py|sh|tar|bin)\Z", re.IGNORECASE)
_HERE = re.compile(r"\$\{?(?:SLURM_SUBMIT_DIR|PWD)\}?/?")
_RESUMES = re.compile(r"[\s+{]--?[\w-]*resume|\bresume=", re.IGNORECASE)
_WORDS = frozenset(("latest", "last", "auto", "true", "false", "none", "never", "best", "yes", "no", "must", "allow"))


class Guess(NamedTuple):
    """A folder for `resume.dir`, the line of the text that names it, and the words there; `is_loaded`: the training
    seems to load from it by itself.
    """

    folder: str
    line: int
    words: str
    is_loaded: bool = False


def guess_folder(text: str) -> Guess | None:
    """The folder that shell code seems to save checkpoints in; None = it names none that stays the same."""
    try:
        statements = [one._replace(text=one.text[:MOST_SEARCHED]) for one in split_statements(text)]
    except Unclosed:
        return None
    found = list(_places(statements))
    if not found:
        return None
    weight, guess = max(found, key=lambda one: one[0])
    loads = [one for place, one in found if place in (READ, 0) and _is_in(one.folder, guess.folder)]
    is_loaded = bool(loads) or any(_RESUMES.search(one.text) for one in statements)
    return guess._replace(is_loaded=is_loaded) if weight else None


def tell_missing(text: str, most: int, file: str = "") -> str | None:
    """What follows without resume.dir, and which folder it may be; None = the text names none. `most`:
    restart.max_without_progress; `file`: where the text stands, "" = in `command`.
    """
    guess = guess_folder(text)
    if guess is None:
        return None
    crashes = "a crash without a further step ends" if most == 1 else (
        f"{most} crashes in a row without a further step end")
    where = f"line {guess.line} of {file}" if file else "command"
    return (f"{crashes} this run, since no checkpoint folder is known: add resume.dir={guess.folder} (a guess, from "
            f"{guess.words!r} in {where})")


def _is_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _places(statements: Iterable[Statement]) -> Iterator[tuple[int, Guess]]:
    """Each place that names a folder, with how much it tells."""
    known: dict[str, str] = {}
    inside = ""   # of cd
    for one in statements:
        if (moved := re.fullmatch(rf"cd\s+{_WORD}", one.text)) is not None:
            inside = _folder(moved["value"], known, "") or inside
        if (assigned := _ASSIGNED.fullmatch(one.text)) is not None:
            known[assigned["name"]] = assigned["value"].strip("\"'")
        for weight, words, value in _named_in(one.text, assigned):
            folder = _folder(value, known, inside)
            if folder is not None:
                yield weight, Guess(folder, one.number, words)


def _named_in(text: str, assigned: re.Match[str] | None) -> Iterator[tuple[int, str, str]]:
    """(weight, the words, the value) of each place in a statement."""
    if assigned is not None:
        for name, weight in _NAMED:
            if name.search(assigned["name"]):
                yield weight, assigned[0], assigned["value"]
                break
    for match in _PATH.finditer(text):
        parts = match[0].split("/")
        at = next((at for at, part in enumerate(parts) if at and "*" in part and _GLOB.search(part)), 0)
        if at:
            yield READ, match[0], "/".join(parts[:at])
    for pattern in (_FIND, _LIST):
        for match in pattern.finditer(text):
            yield READ, match[0], match["value"]
    for pattern, weight in _OPTIONS:
        for match in pattern.finditer(f" {text}"):
            yield weight, match[0].strip(), match["value"]


def _folder(value: str, known: dict[str, str], inside: str) -> str | None:
    """A value as a folder; None = it is none, or another one in each job."""
    text = value.strip("\"'").rstrip("/")
    for _ in range(4):   # a variable's value can name another
        text = _VARIABLE.sub(lambda found: known.get(found[1] or found[2], found[0]), text)
    text = _HERE.sub("", text).removeprefix("./").rstrip("/")
    if _IS_CHECKPOINT.search(text):
        text = text.rpartition("/")[0]
    is_word = text.lower() in _WORDS or text.isdigit() or text.startswith(("-", "http", "s3:", "gs:"))
    if not text or is_word or _IS_FILE.search(text) or _CHANGES.search(_VARIABLE.sub(r"\1\2", text)):
        return None
    text = _VARIABLE.sub(lambda found: f"${{{found[1] or found[2]}}}", text)
    return text if text.startswith(("/", "~", "$")) or not inside else f"{inside}/{text}"

"""What squeue and sacct say of the run's own job, as they would say it under sbatch.

squeue is asked with a mark around each name and command of a job, and the widths that were asked for are kept here:
with 8 columns the name of a run's job is cut where the run's id begins. Pure; standard library, Python 3.9.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Optional

MARK, END = "\x1e", "\x1f"
_HEAD = MARK + "%A" + END + "%j" + END
_HEAD_COLUMNS = "JobID:20" + MARK + ",Name:300" + END + ","
_CALLED = {"j": "NAME", "o": "COMMAND"}
# Source: squeue(1), 22.05.
_DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_VALUED = "ALMOUnopqRStuwi"
_LONG_VALUED = ("account", "clusters", "format", "Format", "licenses", "name", "nodelist", "partition", "qos",
                "reservation", "sort", "state", "states", "user", "users", "iterate", "priority-x")


class Query:
    """squeue's words: its format where it has one, its columns (-O), and the names it asks for; `is_other`: it is left
    as it is.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.words: list[str] = []     # without the format
        self.format: Optional[str] = None
        self.columns = ""
        self.is_other = self.is_json = self.is_headless = self.is_long = self.is_start = self.asks_by_id = False
        left = list(argv)
        while left:
            self._take(left.pop(0), left)
        if self.format is None and not self.columns:
            self.columns = env.get("SQUEUE_FORMAT2", "")
        if self.format is None:
            self.format = env.get("SQUEUE_FORMAT") or (
                _START if self.is_start else _LONG if self.is_long else _DEFAULT)

    def _take(self, word: str, left: list[str]) -> None:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and name in _LONG_VALUED and left:
                value = left.pop(0)
            self._note(name, value, "--%s=%s" % (name, value) if value or equals else word)
        elif word.startswith("-") and len(word) > 1:
            letters = word[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                value = ""
                if letter in _VALUED:
                    value, letters = letters or (left.pop(0) if left else ""), ""
                elif letter in "js":
                    value, letters = letters, ""
                self._note(letter, value, "-%s%s" % (letter, value))
        else:
            self.words.append(word)

    def _note(self, name: str, value: str, word: str) -> None:
        if name in ("o", "format"):
            self.format = value
            return
        if name in ("O", "Format"):
            self.columns = value
            return
        self.is_other |= name in ("i", "iterate", "s", "steps", "yaml", "V", "version", "help", "usage")
        self.is_json |= name == "json"
        self.is_headless |= name in ("h", "noheader")
        self.is_long |= name in ("l", "long")
        self.is_start |= name == "start"
        self.asks_by_id |= name in ("j", "jobs")
        self.words.append("--name=%s" % value if name == "n" else word)

    def ask(self, name: str, hidden: str, links: Sequence[str]) -> list[str]:
        """The words for the real squeue: the job is asked for by its own name, too; links are unknown to Slurm."""
        words = []
        for word in self.words:
            if word.startswith("--name=") and name in word[7:].split(","):
                word += "," + hidden
            words += _less(word, links)
        assert self.format is not None
        if self.is_json:
            return words
        if self.columns:
            return [*words, "--Format=" + _HEAD_COLUMNS + self.columns]
        return [*words, "--format=" + _HEAD + "".join(
            MARK + letter + "%" + letter + END + rest if letter in _CALLED else head + letter + rest
            for head, letter, rest in fields_of(self.format))]

    def widths(self) -> list[tuple[str, bool, int]]:
        """(letter, right-justified, width or 0) of each marked field."""
        assert self.format is not None
        return [(letter, head.startswith("%."), int(head.lstrip("%.") or 0))
                for head, letter, _ in fields_of(self.format) if letter in _CALLED]


def fields_of(format: str) -> list[tuple[str, str, str]]:
    """(head, letter, what follows up to the next field) of each field such as "%.8j"; no head and letter in front of
    the first, and of what is none. Without `re`, which takes 5 ms to import.
    """
    first, *parts = format.split("%")
    found = [("", "", first)]
    for part in parts:
        width = part[1:] if part.startswith(".") else part
        rest = width.lstrip("0123456789")
        if rest and rest[0].isascii() and rest[0].isalpha():
            found.append(("%" + part[:len(part) - len(rest)], rest[0], rest[1:]))
        else:
            found.append(("", "", "%" + part))
    return found


def _less(word: str, links: Sequence[str]) -> list[str]:
    head = next((one for one in ("-j", "--jobs=") if word.startswith(one)), "")
    ids = word[len(head):]
    if not links or not set(ids.split(",")) & set(links):
        return [word]
    kept = ",".join(one for one in ids.split(",") if one not in links)
    return [head + (kept or "4294967293")]   # no job has it


def as_sbatch_has_it(text: str, job: str, hidden: str, facts: Mapping[str, str], query: Query) -> str:
    """squeue's answer to `query.ask`, in the form that was asked for: the own job with its `facts` (by letter)."""
    lines = []
    for number, line in enumerate(text.split("\n")):
        start, mark, rest = line.partition(MARK)
        if not mark:
            lines.append(line)
            continue
        id, name, body = [*rest.split(END, 2), "", ""][:3]
        if name == hidden and id != job and not query.asks_by_id:
            continue   # the run's next job, which under sbatch is not there
        is_header = number == 0 and not query.is_headless and id == "JOBID"
        lines.append(start + _line(body, facts if id == job else {}, query, is_header, (name, hidden)))
    return "\n".join(lines)


def columns_as_sbatch_has_them(text: str, job: str, hidden: str, own: Mapping[str, str], query: Query) -> str:
    """The same of --Format: `own` says what stands in its place in the columns of the own job."""
    lines = []
    for line in text.replace("\n", "\n\0").split("\0"):   # each with its end
        id, _, rest = line.partition(MARK)
        name, _, body = rest.lstrip().partition(END)
        if id.strip() == job:
            for said, meant in own.items():
                body = _cell(body, said, meant)
        elif name.strip() == hidden and not query.asks_by_id:
            continue
        lines.append(body)
    return "".join(lines)


def _cell(body: str, said: str, meant: str) -> str:
    """A column's value put anew, in its width, which may have cut it."""
    import re  # few scripts ask so

    both = min(len(said), len(meant))
    same = next((at for at in range(both) if said[at] != meant[at]), both)
    for length in range(len(said), same, -1):
        found = re.search(r"(?<!\S)%s(?=\s|$)( *)" % re.escape(said[:length]), body)
        if found:
            width = len(found[0])
            return body[:found.start()] + meant[:width].ljust(width) + body[found.end():]
    return body


def _line(body: str, facts: Mapping[str, str], query: Query, is_header: bool, names: tuple[str, str]) -> str:
    parts = body.split(MARK)
    for index, (letter, is_right, width) in enumerate(query.widths(), 1):
        value, _, rest = parts[index][1:].partition(END)
        if not is_header:
            value = facts.get(letter, value)
        value = value[:width] if width else value
        parts[index] = (value.rjust(width) if is_right else value.ljust(width)) + rest
    return "".join(parts)


def names_as_sbatch_has_them(text: str, hidden: str, name: str) -> str:
    """sacct's answer: the run's job by the script's own name, in columns of the same width. Of a name that does not fit
    sacct shows the begin, and a "+".
    """
    told, at, least = [], 0, min(len(name) + 2, len(hidden))
    while (start := text.find(hidden[:least], at)) >= 0:
        length = next((n for n in range(least, len(hidden)) if text[start + n:start + n + 1] != hidden[n]), len(hidden))
        is_cut = length < len(hidden)
        told.append(text[at:start])
        at = start + length
        if is_cut and text[at:at + 1] != "+":
            told.append(text[start:at])
            continue
        at += is_cut
        is_column = is_cut or text[start - 1:start] == " "
        told.append(name.rjust(at - start) if is_column and len(name) <= at - start else name)
    return "".join(told) + text[at:]


def with_hidden_name(argv: Sequence[str], name: str, hidden: str) -> list[str]:
    """sacct's words, which ask for the job by its own name, too."""
    changed = []
    for number, word in enumerate(argv):
        before = argv[number - 1] if number else ""
        head, equals, value = word.partition("=")
        is_named = (head == "--name" and equals) or before in ("--name",)
        names = value if equals else word
        changed.append(word + "," + hidden if is_named and name in names.split(",") else word)
    return changed

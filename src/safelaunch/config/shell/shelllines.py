"""A shell script ▸ its statements with their lines: as much of bash's grammar as the question needs what each one is.

Source: bash(1), QUOTING, Here Documents. Nothing is run. A text that this cannot read raises Unclosed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_HERE = re.compile(r"<<-?[ \t]*(?:'([^']+)'|\"([^\"]+)\"|\\?([A-Za-z0-9_.]+))")
_PIECE = re.compile(r"""\$'(?:\\.|[^'\\])*'|'[^']*'|"(?:\\.|[^"\\])*"|\\\n[ \t]*|\\.""", re.DOTALL)
# Runs of characters that mean nothing: one step each, else a script of 1 MB takes seconds.
_PLAIN, _BLANKS = re.compile(r"""(?:[^\n;&#<\\'"`$(]+|\$(?!\{))+"""), re.compile(r"\s*")
_INSIDE = re.compile(r"""(?:[^\\'"`$()#}]+|\$(?!\{))+""")
_QUOTED = {"'": re.compile(r"[^'\\]+"), '"': re.compile(r'[^"\\$]+'), "`": re.compile(r"[^`\\]+")}


MOST_SEARCHED = 4096   # characters of a statement, for patterns that take long over more


class Statement(NamedTuple):
    """One command with all its words, continued lines joined; `has_here`: a here-document follows it."""

    number: int              # of its first line, from 1
    text: str
    is_background: bool = False
    has_here: bool = False


class Unclosed(Exception):
    """A quote or bracket has no end; `number`: the line in which it opens."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"{what} has no end")
        self.number, self.what = number, what


@lru_cache(2)   # several questions are asked of one script
def split_statements(text: str) -> tuple[Statement, ...]:
    """The statements of a script, comments left out; those of a loop or function are statements of their own."""
    reading = _Reading(text)
    reading.read()
    return tuple(reading.found)


def _joined(text: str) -> str:
    """Its continued lines as one, as bash joins them; outside of quotes one blank stands for the next line's indent."""
    if "\\\n" not in text:
        return text

    def join(found: re.Match[str]) -> str:
        piece = found[0]
        if piece.startswith("\\\n"):
            before = text[max(0, found.start() - 1):found.start()]
            return " " if len(piece) > 2 and before and not before.isspace() else ""
        return piece.replace("\\\n", "") if piece.startswith('"') else piece
    return _PIECE.sub(join, text)


class _Reading:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: list[Statement] = []
        self._start: int | None = None
        self._heres: list[str] = []
        self._counted = (0, 1)   # an index, and the line that it is in

    def read(self) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if run := _PLAIN.match(self.text, self.at):
                if self._start is None and not run[0].isspace():
                    self._start = _BLANKS.match(run[0]).end() + self.at   # type: ignore[union-attr]  # it always does
                self.at = run.end()
            elif char == "\n":
                self._end()
                self._skip_here_documents()
            elif char == ";" or (char == "&" and self._is_background()):
                self._end(char == "&")
            elif char == "#" and self._is_word_start():
                self._end_at_comment()
            elif char == "<" and self.text.startswith("<<<", self.at):
                self.at += 3
            elif char == "<" and (here := _HERE.match(self.text, self.at)):
                self._heres.append(here[1] or here[2] or here[3])
                self.at = here.end()
            else:
                if not char.isspace() and self._start is None:
                    self._start = self.at
                self.at = self._past(self.at)
        self._end()

    def _end(self, is_background: bool = False) -> None:
        if self._start is not None:
            words = _joined(self.text[self._start:self.at]).strip()
            number = self._line(self._start)
            if words:
                self.found.append(Statement(number, words, is_background, bool(self._heres)))
        self._start = None
        self.at += 1

    def _end_at_comment(self) -> None:
        end = self.text.find("\n", self.at)
        if self._start is not None:
            self._end()
        self.at = len(self.text) if end < 0 else end

    def _is_word_start(self) -> bool:
        return self.at == 0 or self.text[self.at - 1] in " \t\n;&|("

    def _is_background(self) -> bool:
        """Whether this & ends a statement: not in `&&`, `&>`, `>&`, `<&`, `|&`."""
        before, after = self.text[self.at - 1:self.at], self.text[self.at + 1:self.at + 2]
        return before not in ("&", ">", "<", "|") and after not in ("&", ">")

    def _skip_here_documents(self) -> None:
        for word in self._heres:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line, self.at = self.text[self.at:end], end + 1
                if line.lstrip("\t") == word:
                    break
        self._heres = []

    def _line(self, index: int) -> int:
        before, line = self._counted if index >= self._counted[0] else (0, 1)
        self._counted = index, line + self.text.count("\n", before, index)
        return self._counted[1]

    def _past(self, index: int) -> int:
        """The index behind the character, quoted text or substitution that stands there."""
        char = self.text[index]
        if char == "\\":
            return index + 2
        if char == "'":
            is_ansi = index > 0 and self.text[index - 1] == "$"
            return self._past_quote(index, "'", escapes=is_ansi)
        if char in "\"`":
            return self._past_quote(index, char, escapes=True)
        if self.text.startswith("${", index):
            return self._past_bracket(index, index + 2, "}")
        if char == "(":   # also of $( and $((
            return self._past_bracket(index, index + 1, ")")
        return index + 1

    def _past_quote(self, start: int, quote: str, escapes: bool) -> int:
        index, plain = start + 1, _QUOTED[quote]
        while index < len(self.text):
            char = self.text[index]
            if char == quote:
                return index + 1
            if run := plain.match(self.text, index):
                index = run.end()
            elif escapes and char == "\\":
                index += 2
            elif quote == '"' and self.text.startswith("$(", index):
                index = self._past_bracket(index, index + 2, ")")
            elif quote == '"' and self.text.startswith("${", index):
                index = self._past_bracket(index, index + 2, "}")
            else:
                index += 1
        raise Unclosed(self._line(start), f"the quote {quote}")

    def _past_bracket(self, start: int, index: int, end: str) -> int:
        while index < len(self.text):
            if run := _INSIDE.match(self.text, index):
                index = run.end()
                continue
            if self.text[index] == end:
                return index + 1
            if self.text[index] == "#" and self.text[index - 1] in " \t\n" and end == ")":   # a comment
                newline = self.text.find("\n", index)
                index = len(self.text) if newline < 0 else newline
            else:
                index = self._past(index)
        raise Unclosed(self._line(start), f"the bracket of this {end}")

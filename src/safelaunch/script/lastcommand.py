"""The end of a shell text that can replace its shell by exec: a simple command, read by bash's own rules. Only what is
certain is found. Any other end of a text (a pipe, a loop, a redirection) runs under a shell that stays, as with `bash
-c`. Source: bash(1), SIMPLE COMMANDS, RESERVED WORDS, QUOTING.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import islice

from safelaunch.config.handed import BASHS_OWN

_MOST_TRIES = 200   # line ends and the like that are looked at, the last ones first
_MOST_ASKED = 8     # what remains is asked of bash, at 2 ms each
_DEEPEST = 20       # of expansions within each other
_START = r"\n|;|&&|\|\|"                         # what a command may stand behind
_COMMENT = r"(?:^|[ \t;&|()])#"
_BLANK = r"(?:[ \t]|\\\n)*"
_REST = r"(?:[ \t]*;)?(?:[ \t\n]|(?<![^ \t\n;])#[^\n]*(?![^\n]))*\Z"   # nothing but blanks and comments
_SET = r"([A-Za-z_][A-Za-z0-9_]*)\+?="
_ELEMENT = r"[A-Za-z_][A-Za-z0-9_]*\["           # an array's may be set there
_PLAIN = r"""[^ \t\n\\'"$`;&|<>()]+"""           # of a word; a # is part of it unless it comes first
_QUOTED = r"""(?s)\\.|'[^']*'|\$'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`"""
_VARIABLE = r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-]|(?=[ \t\n;]|\Z))"
_IN_DOUBLE = r'(?s)(?:[^"\\$`]|\\.|`(?:[^`\\]|\\.)*`|\$(?=[^A-Za-z0-9_@*#?$!({\[-]))+'
_IN_BRACES = r"""[^\\'"$`{}]+"""
_IN_PARENS = r"""[^\\'"$`()#<]+|#(?<=[^ \t\n;&|(]#)|<(?!<)"""
# Words with a meaning in bash's grammar, and the word before an alias's definition.
_GRAMMAR = frozenset(
    ("if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in",
     "function", "time", "coproc", "{", "}", "!", "[[", "]]",
     "export", "declare", "typeset", "local", "readonly", "alias"))
# A text of these is one command of plain words: most are, and no pattern need be compiled.
_WORDS_ONLY = frozenset(" _./:,@%+-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_compiled = cache(re.compile)


class _Unclear(Exception):
    """This text is perhaps not one simple command."""


def find_last(text: str, is_complete: Callable[[str], bool]) -> str:
    """The end of `text` that is one simple command, after its line and the names of the variables that it sets for
    itself: "1 A B -- python train.py" of "cd x && A=1 B=2 python train.py". Empty where there is none. `is_complete`
    says whether a list of commands may begin after the text before it.
    """
    if _WORDS_ONLY.issuperset(text) and text[:1].strip() and text.split()[0] not in (*_GRAMMAR, "command", "builtin"):
        return _kept(text, [], 0)
    asked = 0
    starts = reversed([0, *(match.end() for match in _compiled(_START).finditer(text))])
    for start in islice(starts, _MOST_TRIES):
        try:
            names, command = _simple_command(text, start)
        except _Unclear:
            continue
        before = text[:start]
        if not before.strip():
            return _kept(text, names, command)
        asked += 1
        # A function could see PIPESTATUS, and no other command. An alias is known from the next list of commands on.
        if asked > _MOST_ASKED or "PIPESTATUS" in before or "alias" in before:
            break
        if _may_end(before) and is_complete(before):
            return _kept(text, names, command)
    return ""


def _kept(text: str, names: list[str], command: int) -> str:
    line = 1 + text.count("\n", 0, command)
    return " ".join([str(line), *names, "--", text[command:]])


def _may_end(before: str) -> bool:
    """Whether its last line end, `;`, `&&` or `||` is surely one, and neither quoted nor part of a comment."""
    if before.endswith("\n"):
        return not before.endswith("\\\n")
    return before.rstrip(";&|")[-1:] != "\\" and not _compiled(_COMMENT).search(before.rpartition("\n")[2])


def _simple_command(text: str, start: int) -> tuple[list[str], int]:
    """(names that it sets, where its first word begins) of a simple command from here to the end."""
    at = _skip(text, start)
    names = []
    while match := _compiled(_SET).match(text, at):
        names.append(match[1])
        at = _skip(text, _word_end(text, match.end()))
    command = at
    words = []
    while not _compiled(_REST).match(text, at):
        end = _word_end(text, at)
        if end == at:
            raise _Unclear
        words.append(text[at:end].replace("\\\n", ""))
        at = _skip(text, end)
    if not _is_plain(words) or not BASHS_OWN.isdisjoint(names):   # these need not keep what they are set to
        raise _Unclear
    return names, command


def _is_plain(words: list[str]) -> bool:
    """Whether a function that is called with these words gets just what the command would get."""
    first = next((word for word in words if word not in ("command", "builtin")), "")
    if not first or first in _GRAMMAR or _compiled(_ELEMENT).match(first):
        return False
    if first.startswith("\\"):   # no alias then, and the function cannot see that
        return False
    # Words that come of `$(…)` alone may be none, and then the exit code is that one's.
    return any(map(_is_one, words)) or not any("$(" in word or "`" in word for word in words)


def _is_one(word: str) -> bool:
    """Whether it is surely a word after its expansion."""
    return word[0] not in "$`" and (word[0] != '"' or "@" not in word)


def _skip(text: str, at: int) -> int:
    match = _compiled(_BLANK).match(text, at)
    assert match is not None
    return match.end()


def _word_end(text: str, at: int) -> int:
    """Where the word that begins here ends. A value may be empty. Raises _Unclear at an operator or an open quote."""
    if text[at:at + 1] == "#" and text[at - 1:at] != "=":
        raise _Unclear
    while at < len(text) and text[at] not in " \t\n;":
        match = _compiled(_PLAIN).match(text, at)
        at = match.end() if match else _quoted_end(text, at)
    return at


def _quoted_end(text: str, at: int, depth: int = 0) -> int:
    """Where a quotation or an expansion ends that begins here."""
    for pattern in (_QUOTED, _VARIABLE):
        if match := _compiled(pattern).match(text, at):
            return match.end()
    if text.startswith('$"', at):
        at += 1
    for opening, closing, inside in (('"', '"', _IN_DOUBLE), ("${", "}", _IN_BRACES), ("$(", ")", _IN_PARENS)):
        if text.startswith(opening, at):
            return _group_end(text, at + len(opening), closing, inside, depth + 1)
    raise _Unclear


def _group_end(text: str, at: int, closing: str, inside: str, depth: int) -> int:
    began = at
    while at < len(text) and depth <= _DEEPEST:
        if text[at] == closing:
            if closing == ")" and "case" in text[began:at]:   # its patterns close what was never opened
                raise _Unclear
            return at + 1
        match = _compiled(inside).match(text, at)
        if match:
            at = match.end()
        elif closing == ")" and text[at] == "(":
            at = _group_end(text, at + 1, ")", inside, depth + 1)
        elif closing == "}" and text.startswith(("'", "$'"), at):   # what they mean there depends on what is around
            raise _Unclear
        else:
            at = _quoted_end(text, at, depth)
    raise _Unclear

"""What a shell text ends with: found where it is certain, and nowhere else; with a real bash that is asked."""

from __future__ import annotations

import pytest

from safelaunch.config.io.bashtext import is_complete
from safelaunch.script.lastcommand import find_last
from tests.tables import each

FOUND = {
    "python train.py": "1 -- python train.py",
    "python train.py  # once\n\n": "1 -- python train.py  # once\n\n",
    'cd x && A=1 B+="$X y" python train.py "${RESUME_ARGS[@]}"': '1 A B -- python train.py "${RESUME_ARGS[@]}"',
    "cd x\n# why\n\n  python \\\n  --lr 1\\\n 0": "4 -- python \\\n  --lr 1\\\n 0",
    "false || python train.py;": "1 -- python train.py;",
    "f() { python \"$@\"; }\nf a": "2 -- f a",
    "cat <<EOF\npython x\nEOF\npython y": "4 -- python y",
    "python -c 'a;\nb && c' \"d; $(date \"+%F;%T\")\" ${X:-$(id)} `id` $((1+2)) \\; a#b $'\\'' $\"x\"":
        "1 -- python -c 'a;\nb && c' \"d; $(date \"+%F;%T\")\" ${X:-$(id)} `id` $((1+2)) \\; a#b $'\\'' $\"x\"",
    "foo # not; this": "1 -- foo # not; this",
    "$TRAIN": "1 -- $TRAIN",
    "find . -exec x \\; -print": "1 -- find . -exec x \\; -print",
}
UNCLEAR = (
    "", "# nothing", "python a > b", "python a 2>&1", "python a | tee b", "python a &", "python <<<x", "python <(x)",
    "cat <<EOF\npython x\nEOF", "(python a)", "{ python a; }", "if a; then python b; fi", "time python a", "! python a",
    "A=1", "A[0]=1", "A=(1) python a", "export A=1", "command declare A=1", "\\python a", "$(false)", "`false`",
    "IFS=, python a", "python 'a", 'python "a', "python $(a", "python `a", "python ${a", "python $(a # )\n)",
    "python $(case a in a) b;; esac)", "python $(cat <<EOF\nEOF\n)", "python a)", "python ${a:-'}'}",
    "a | tee b\nf() { exit ${PIPESTATUS[0]}; }\nf",
)


@pytest.mark.parametrize("text, last", FOUND.items(), ids=FOUND.keys())
def test_the_last_simple_command_is_found(text: str, last: str) -> None:
    assert find_last(text, is_complete) == last


@each("text", UNCLEAR)
def test_what_is_not_surely_one_is_none(text: str) -> None:
    assert find_last(text, is_complete) == ""


@pytest.mark.parametrize("before", [
    "a |\n", "a | # b\n", "if c; then\n", "x='\n", "for i in\n", "a=(b\n", "cat <<EOF\n", "[[ a &&",
    "case a in b) c;;\n", "a[b ||", "f()\n", "cat <<EOF &&", "echo $[ 1 ||", 'echo "a;', "echo `a;", "((a;",
    "{ a;", "(a\n"])
def test_no_command_begins_behind_what_is_not_complete(before: str) -> None:
    assert not is_complete(before)


@pytest.mark.parametrize("before", [
    "", "a\n", "a;", "a &&", "a ||\n", "if b; then c; fi\n", "cat <<EOF\nit's\nEOF\n", "# it's\n", "a=(b\nc)\n", "é\n",
    "f() { a; }\n", "a &\n", "case a in b) c;; esac;", "[[ a && b ]] &&"])
def test_one_may_begin_behind_what_is(before: str) -> None:
    assert is_complete(before)


def test_without_bash_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert not is_complete("a\n")


@pytest.mark.parametrize("text", ["a \\\npython b", "a # c; python b\n > d", "a \\; python b > c"])
def test_a_line_end_that_is_none_and_a_comments_semicolon_are_not_asked_about(text: str) -> None:
    def refuse(before: str) -> bool:
        pytest.fail(f"asked about {before!r}")

    find_last(text, refuse)


@pytest.mark.parametrize("text", ["x;\n" * 40_000 + "fi", "'" * 119_999, "$(" * 1_000, "a " * 59_000, '"$(' * 2_000])
def test_no_text_takes_long(text: str) -> None:
    assert find_last(text, lambda before: False) in ("", f"1 -- {text}")

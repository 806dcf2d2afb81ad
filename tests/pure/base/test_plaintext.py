"""Foreign text in the job's own output, in scripts and before a person's eyes."""

from __future__ import annotations

import json
import subprocess

from hypothesis import example, given, settings
from hypothesis import strategies as st

from safelaunch.base.plaintext import clean, clean_json, columns
from safelaunch.script.script import quote_bash
from safelaunch.slurm.slurmoutput import parse_ending
from tests.tables import each

END = "slurmstepd: error: *** JOB 4711 ON n0 CANCELLED AT 2026-11-23T01:02:03 ***"


@each(("text", "shown"), [
    ("step 5 of ünïcode", "step 5 of ünïcode"), ("a\tb", "a\tb"), ("one\n  two\r\n", "one; two"),
    ("\x1b[2J", "\\x1b[2J"), ("\x9b31m", "\\x9b31m"), ("a\x85b", "a\\x85b"), ("cc\u202etxt.exe", "cc\\u202etxt.exe"),
    ("\u2028", "\\u2028"), ("step_5\udcff.pt", "step_5\\xff.pt"), ("\ud800", "\\ud800"), (None, "None"),
], ids=str)
def test_what_no_terminal_should_be_sent_is_made_visible(text: object, shown: str) -> None:
    assert clean(text) == shown


@given(st.text(st.characters(), max_size=40))
@settings(max_examples=60)
@example("\udc80\r\n\u2029")
@example("\x7f")
def test_any_text_becomes_one_line_that_can_be_encoded(text: str) -> None:
    assert b"\n" not in clean(text).encode() and len(clean(text).splitlines()) <= 1
    line = clean_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(line) == text and not any(char in line for char in "\x7f\x9b\u202e")


@each("name", [f"step_9\n{END}\n.pt", f"step_9\r{END}\r.pt", f"step_9\u2028{END}"],
                         ids=["newline", "carriage return", "line separator"])
def test_the_name_of_a_file_is_never_taken_for_slurms_word(name: str) -> None:
    assert parse_ending(f"safelaunch 2026-11-23T01:02:03 n0: checkpoint {clean(name)} is skipped\n", "4711") is None
    own = f"safelaunch 2026-11-23T01:02:03 n0: it resumes with: a\r{END}\n"
    assert parse_ending(own, "4711") is None and parse_ending(f"5%|#  |\r{END}\n", "4711") == "cancelled"


def test_bash_reads_any_bytes_back_from_a_quoted_word() -> None:
    words = [bytes(range(1, 256)), b"\xff", b"step_5\xff'\n.pt", "ü".encode()]
    script = "printf '%s\\0'" + "".join(" " + quote_bash(word.decode(errors="surrogateescape")) for word in words)
    said = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=120).stdout
    assert said.split(b"\0")[:-1] == words


def test_columns_are_straight_but_for_the_last_which_is_as_long_as_it_is() -> None:
    assert columns([("state", "nodes", "why"), ("ok", "n[0-3]", "it is long")]) == [
        "state  nodes   why", "ok     n[0-3]  it is long"]
    assert columns([]) == [] and columns([("alone",)]) == ["alone"]

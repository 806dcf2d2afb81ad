"""What people and programs are told of a verdict: order, folding, tickets, the public object."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.why.findings import CLOCK_STAMPS, Cited, Log
from safelaunch.why.show import verdicttext
from safelaunch.why.show.ticket import find_device, is_for_site, render_ticket
from safelaunch.why.show.verdictjson import to_public
from safelaunch.why.show.verdicttext import VerdictRow, describe, explain_rule, page_rows, tell
from safelaunch.why.verdict import Verdict
from tests.tables import each

T = 1714566600.0   # 2024-05-01 12:30:00 UTC
CAUSE = Cited("gpu_ecc", "cause", "main.log", 40, "CUDA error: uncorrectable ECC error encountered", "n7", 3, T)
CONTEXT = Cited("gpu_xid", "context", "main.log", 12, "NVRM: Xid (PCI:0000:90:00): 63", "n7", None, T - 90)
ECHO = Cited("nccl_watchdog", "symptom", "main.log", 55, "Watchdog caught collective operation timeout", "n1", 0,
             T + 600, count=1024, hosts=("n1", "n2", "n3", "n4", "n5"), ranks=tuple(range(62)))
END = Cited("srun_exit", "teardown", "main.log", 900, "srun: error: n1: task 0: Exited with exit code 1", t=T + 660,
            count=48)
OTHER = Verdict("native_crash", "a segmentation fault", 0.3, "restart")
GPU = Verdict("gpu_hardware", "an uncorrectable ECC error", 0.95, "exclude_and_restart", suspects=("n7",), rank=3,
              host="n7", cause=CAUSE, cited=(CONTEXT, CAUSE), symptoms=(ECHO, END), runner_up=OTHER,
              fingerprint="cuda error uncorrectable ecc", changes="an Xid elsewhere")
LOG = Log(("main.log", "n1.log"), size_bytes=12_345_678, clock=CLOCK_STAMPS)


def labels(rows: list[VerdictRow]) -> list[str]:
    return [row.label for row in rows if row.label]


def test_the_verdict_comes_first_then_the_cause_then_what_followed() -> None:
    rows = list(tell(GPU, LOG, did=("restarted without n7",), next_lines=("safelaunch why --ticket",)))
    assert labels(rows) == ["verdict", "where", "suspect", "action", "first", "context", "then", "echoes", "read", "or",
                            "safelaunch", "you", "next"]
    assert rows[0].text == "gpu_hardware: a GPU or its link is failing (95% sure)"


def test_echoes_are_folded_to_who_when_and_how_many() -> None:
    assert describe(ECHO, True, T) == "10 min later · main.log:55 · 62 ranks on 5 hosts · 1024 lines"


@each(("seconds", "text"), [
    (0.2, "at once"), (-0.4, "at once"), (5, "5 s later"), (-90, "2 min before"), (7300, "2 h later"),
    (200_000, "2 d later")])
def test_a_distance_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert describe(ECHO._replace(t=T + seconds, count=1, ranks=(), hosts=()), True, T).startswith(f"{text} · ")


def test_without_a_clock_no_time_is_shown() -> None:
    assert describe(ECHO, False, T).startswith("main.log:55")
    order = next(row for row in tell(GPU, replace(LOG, clock="file order")) if row.label == "read")
    assert "in the order of the files" in order.text


def test_the_lines_of_the_end_are_only_counted_unless_all_are_asked_for() -> None:
    short, long = list(tell(GPU, LOG)), list(tell(GPU, LOG, show_all=True))
    assert [row.text for row in short if row.label == "echoes"] == ["48 lines that follow from it (--all)"]
    assert any("task 0: Exited" in row.text for row in long) and not any("task 0: Exited" in row.text for row in short)


def test_a_long_traceback_keeps_its_head_and_its_end() -> None:
    block = ("Traceback (most recent call last):", *(f"  line {n}" for n in range(40)), "KeyError: 7")
    rows = list(tell(replace(GPU, cause=CAUSE._replace(block=block), cited=()), LOG))
    shown = [row.text.removeprefix("  ") for row in rows if row.text.startswith("  ")]
    assert shown[0] == block[0] and shown[12] == block[-1] and "30 lines" in shown[2]


def test_a_very_long_line_keeps_its_beginning_and_its_end() -> None:
    rows = list(tell(replace(GPU, cause=CAUSE._replace(text="a" * 1000 + "the end"), cited=()), LOG))
    line = next(row.text.strip() for row in rows if row.text.startswith("  "))
    assert len(line) < 510 and line.startswith("aaa") and line.endswith("the end")


def test_a_line_that_was_not_counted_is_placed_by_its_byte() -> None:
    assert "main.log at byte 123" in describe(CAUSE._replace(line_number=None, offset=123), False)


@each("verdict", [Verdict("unknown", "", 0.0, "restart"), Verdict("none", "healthy", 0.9, "none"),
                                     Verdict("of_a_pack", "x", 0.5, "odd_action")], ids=["unknown", "none", "foreign"])
def test_a_verdict_without_lines_is_told_as_well(verdict: Verdict) -> None:
    rows = list(tell(verdict, Log()))
    assert rows[0].label == "verdict" and ("you" in labels(rows)) is (verdict.category != "none")


def test_the_public_object_holds_what_was_promised() -> None:
    said = to_public(GPU)
    assert list(said) == ["v", "verdict", "candidates", "symptoms", "fingerprint", "speakers"]
    assert said["verdict"]["evidence"][0] == {
        "file": "main.log", "line_number": 40, "text": CAUSE.text, "role": "cause"}
    assert [line["role"] for line in said["verdict"]["evidence"]] == ["cause", "context"]
    assert said["verdict"]["runner_up"]["category"] == "native_crash"
    assert said["symptoms"][0] == {
        "file": "main.log", "line_number": 55, "text": ECHO.text, "role": "symptom", "count": 1024, "hosts": 5,
        "ranks": 62, "after_s": 600.0}
    assert to_public(OTHER)["verdict"]["runner_up"] is None


def test_a_ticket_says_all_that_administrators_ask_back_for() -> None:
    text = render_ticket(GPU, "4711", "bloom", "n[1-8]")
    assert text.startswith("Subject: node n7: a GPU or its link is failing\n")
    for fact in ("Node:        n7", "Device:      PCI:0000:90:00", "Time:        2024-05-01 12:30:00",
                 "Job:         4711 (bloom) on n[1-8]", "main.log:40", "Please drain the node"):
        assert fact in text


@each(("t", "time"), [(T, "2024-05-01 12:30:00"), (None, "2024-05-01T14:30:02+02:00 (n7 was lost)")])
def test_a_ticket_takes_the_journals_time_where_the_log_has_none(t: float | None, time: str) -> None:
    """Of a node that dies no line may say when; the journal does, to the second."""
    cause = CAUSE._replace(t=t)
    verdict = replace(GPU, cause=cause, cited=(cause,))
    assert f"Time:        {time}\n" in render_ticket(verdict, noted="2024-05-01T14:30:02+02:00 (n7 was lost)")


@each(("text", "device"), [
    ("NVRM: Xid (PCI:0000:10:1c): 63, pid=1", "PCI:0000:10:1c"), ("mlx5_3:1 port down", "mlx5_3:1"),
    ("hfi1_0: link lost", "hfi1_0"), ("GPU 0000:07:00.0 has fallen", "0000:07:00.0"),
    ("row remap failed on GPU 5", "GPU 5"), ("loss 0.5 at step 3", None)])
def test_the_device_is_read_from_the_evidence(text: str, device: str | None) -> None:
    assert find_device(replace(GPU, cause=CAUSE._replace(text=text), cited=())) == device


def test_only_what_administrators_can_mend_is_theirs() -> None:
    assert is_for_site(GPU) and not is_for_site(replace(GPU, category="user_code"))


def test_a_page_says_what_it_means_what_to_check_and_then_what() -> None:
    assert labels(list(page_rows("hang"))) == ["category", "means", "check", "then"]


def trace(*paths: str) -> tuple[str, ...]:
    frames = [line for number, path in enumerate(paths)
              for line in (f'  File "{path}", line {number}, in f', "    go()", "    ^^^^")]
    return ("Traceback (most recent call last):", *frames, "ValueError: no")


def test_a_long_traceback_shows_its_first_frame_the_users_own_and_the_last() -> None:
    library = "/usr/lib/python3.11/site-packages/torch/x.py"
    shown = verdicttext.fold_traceback(trace("/home/u/main.py", library, library, "/home/u/model.py", library, library))
    assert [line.strip() for line in shown] == [
        "Traceback (most recent call last):", 'File "/home/u/main.py", line 0, in f', "go()", "… 2 frames …",
        'File "/home/u/model.py", line 3, in f', "go()", "… 1 frame …", f'File "{library}", line 5, in f', "go()",
        "ValueError: no"]


@each("block", [
    (), ("ValueError: no",), trace("/home/u/main.py"), ("Traceback (most recent call last):", *["  odd"] * 40, "E: x"),
    tuple(f'  File "x{number}"' for number in range(30)), trace(*["/home/u/a.py"] * 30)[:-1]],
    ids=["none", "a line", "short", "no frames", "torn frames", "no exception"])
def test_no_block_is_too_odd_to_be_folded(block: tuple[str, ...]) -> None:
    shown = verdicttext.fold_traceback(block)
    assert len(shown) <= max(verdicttext.SHOWN_BLOCK + 3, 3 * (verdicttext.SHOWN_OWN + 2) + 6)
    assert shown[-1:] == block[-1:] or not block[-1].strip(" ^")


def test_a_doubtful_verdict_says_so_and_has_the_next_reading_beside_it() -> None:
    rows = list(tell(replace(GPU, confidence=0.42), LOG))
    assert rows[0].text == "not sure, perhaps gpu_hardware: a GPU or its link is failing (42% sure)"
    assert labels(rows)[:5] == ["verdict", "where", "suspect", "action", "or"] and labels(rows).count("or") == 1


@each("category, text, word, is_shown", (
    ("cuda_oom", "CUDA out of memory", "nvidia-smi", True),
    ("cuda_oom", "HIP out of memory", "nvidia-smi", False),
    ("hub_auth", "401 Client Error: Unauthorized", "token", True),
    ("hub_auth", "429 Client Error: Too Many Requests", "token", False),
    ("checkpoint", "RuntimeError: PytorchStreamReader failed", "all shards there", True),
    ("checkpoint", "RuntimeError: file write failed in save", "all shards there", False),
))
def test_advice_fits_the_vendor_and_the_case(category: str, text: str, word: str, is_shown: bool) -> None:
    cause = Cited("", "cause", "main.log", 4, text)
    verdict = Verdict(category, text, 0.6, "restart", cause=cause, cited=(cause,))
    told = "\n".join(row.text for row in verdicttext.advice(verdict, LOG))
    assert (word in told) == is_shown, told


def test_a_kill_that_nothing_explains_is_called_that() -> None:
    rows = list(tell(Verdict("host_oom", "a rank was ended by SIGKILL", 0.55, "restart",
                             rule="memory.sigkill_elastic"), LOG))
    assert rows[0].text.startswith("host_oom: killed, and nothing says by whom")


def test_a_log_without_a_failure_shows_its_last_line() -> None:
    last = Cited("", "context", "main.log", 9, "saving the model")
    seen = Verdict("none", "no failure seen", 0.3, "look", cited=(last,))
    rows = list(tell(seen, LOG))
    assert rows[0].text == "none: no failure seen (30% sure)" and rows[0].style == "bold yellow"
    assert "last" in labels(rows) and "  saving the model" in [row.text for row in rows]


def test_the_words_of_a_line_are_explained_and_a_mistyped_rule_is_not() -> None:
    rows = {row.label: row.text for row in explain_rule("the quota of the volume is used up") or ()}
    assert rows["read as"].startswith("storage") and "quota" in rows["by"]
    assert explain_rule("no.such_rule") is None


def test_of_one_file_nothing_is_said_of_what_was_read() -> None:
    alone = replace(LOG, files=("main.log",))
    assert "read" not in labels(list(tell(GPU, alone)))
    assert "read" in labels(list(tell(GPU, alone, show_all=True)))

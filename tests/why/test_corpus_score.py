"""The scored logs: incidents of the seeds, healthy ones that frighten, planted causes, and other corpora by name."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.why import OWN_SAMPLES, Answer, Case, Score, ask_less, ask_safelaunch, load_corpus, score
from benchmarks.whycuts import cut

from tests.tables import each
from tests.why.generator import Shape, make_log
from tests.why.plants import PLANTS

CONFIDENT_AND_WRONG = 0.05
INCIDENTS = load_corpus(OWN_SAMPLES)
# Sets that were labelled before the first run on them.
FIRST_SIGHT = tuple(case for name in ("firstsight", "programs", "strangers", "trainings")
                    for case in load_corpus(Path(__file__).parent / name))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Score]:
    """The scores of `why` over the project's own logs, and over those that SAFELAUNCH_FAILURE_CORPUS names."""
    folders = os.environ.get("SAFELAUNCH_FAILURE_CORPUS", "").split(":")
    cases = [*INCIDENTS, *planted(tmp_path_factory.mktemp("planted")),
             *(case for folder in folders if folder for case in load_corpus(Path(folder)))]
    return [score(case, answer) for case, answer in zip(cases, ask_safelaunch(cases), strict=True)]


def planted(folder: Path) -> Iterator[Case]:
    """A log of each cause that can be planted, with its label, and one without any."""
    for number, plant in enumerate((*PLANTS, None)):
        log = make_log(plant, Shape(hosts=4, scare=True), seed=number)
        name, categories = (plant.name, (plant.category, *plant.also)) if plant else ("healthy", ("none",))
        path = folder / f"{number}.log"
        path.write_bytes(b"".join(log.files.values()))
        yield Case(name, path, categories[0], frozenset(categories), (log.line,) if plant else (),
                   (log.host,) if log.host else (), log.ranks, frozenset())


def share(values: Sequence[bool | None]) -> float:
    said = [value for value in values if value is not None]
    return sum(said) / len(said)


def misses(scores: Sequence[Score], what: str) -> str:
    return ", ".join(f"{one.case.id} ({'|'.join(one.answer.categories)})" for one in scores if not getattr(one, what))


@each("case", INCIDENTS, ids=[case.id for case in INCIDENTS])
def test_a_sample_is_explained(case: Case) -> None:
    (answer,) = ask_safelaunch([case])
    scored = score(case, answer)
    assert scored.category, answer
    assert scored.line is not False, answer
    assert scored.host is not False and scored.rank is not False, answer
    assert scored.action, answer
    assert not scored.false_alarm and not scored.wrong_and_confident, answer


def test_the_category_is_right_for_95_of_100_logs(corpus: list[Score]) -> None:
    assert share([one.category for one in corpus]) >= 0.95, misses(corpus, "category")


def test_the_line_is_right_for_90_of_100_logs(corpus: list[Score]) -> None:
    assert share([one.line for one in corpus]) >= 0.90, misses(
        [one for one in corpus if one.line is not None], "line")


def test_at_most_5_of_100_logs_get_a_wrong_and_confident_answer(corpus: list[Score]) -> None:
    wrong = [one for one in corpus if one.wrong_and_confident]
    assert len(wrong) <= CONFIDENT_AND_WRONG * len(corpus), [one.case.id for one in wrong]


def test_no_healthy_log_raises_an_alarm(corpus: list[Score]) -> None:
    assert [one.case.id for one in corpus if one.false_alarm] == []


def test_logs_that_were_read_unseen_stay_explained() -> None:
    scores = [score(case, answer) for case, answer in zip(FIRST_SIGHT, ask_safelaunch(FIRST_SIGHT), strict=True)]
    assert share([one.category for one in scores]) >= 0.95, misses(scores, "category")
    assert share([one.line for one in scores]) >= 0.8
    assert not [one.case.id for one in scores if one.false_alarm or one.wrong_and_confident]


def test_no_failing_log_that_ends_inside_a_traceback_is_called_healthy(tmp_path: Path) -> None:
    failed = [case for case in (*INCIDENTS, *FIRST_SIGHT, *planted(tmp_path)) if case.category != "none"]
    (tmp_path / "cut").mkdir()
    cases = [short for case in failed for lines in (0, 1, 2, 3, 5, 8, 13, 21)
             if (short := cut(case, lines, tmp_path / "cut")) is not None]
    assert len(cases) > 50
    said = zip(cases, ask_safelaunch(cases), strict=True)
    assert [case.id for case, answer in said if answer.categories == {"none"}] == []


def each_line(before: bytes, after: bytes = b"") -> Callable[[bytes], bytes]:
    return lambda data: b"".join(before + line.rstrip(b"\n") + after + b"\n" for line in data.splitlines(True))


DRESSES: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data, "carriage returns": each_line(b"", b"\r"), "host and rank": each_line(b"[n7:3]:"),
    "srun -l": each_line(b"3: "), "the default role": each_line(b"[default3]:"),
    "colours": each_line(b"\x1b[31m", b"\x1b[0m"), "no last line end": lambda data: data.rstrip(b"\n"),
    "gzip": gzip.compress,
}


@pytest.mark.parametrize("dress", DRESSES)
def test_how_a_log_is_dressed_does_not_change_its_category(tmp_path: Path, dress: str) -> None:
    dressed = [replace(case, path=tmp_path / f"{case.id}.log") for case in INCIDENTS]
    for case, copy in zip(INCIDENTS, dressed, strict=True):
        copy.path.write_bytes(DRESSES[dress](case.path.read_bytes()))
    misread = [(case.id, answer) for case, answer in zip(INCIDENTS, ask_safelaunch(dressed), strict=True)
               if not score(case, answer).category]
    assert misread == []


# --- the scorer itself ----------------------------------------------------------------------------------------------

CASE = Case("1", Path("1.log"), "hang", frozenset({"hang", "network"}), ("Watchdog caught",), ("n7.site",), (3,),
            frozenset({"restart"}))


def say(*categories: str, confidence: float = 0.9, text: str = "", host: str | None = None,
        suspects: tuple[str, ...] = ()) -> Answer:
    return Answer(frozenset(categories), confidence, text, host, None, suspects, "restart")


@each(
    ("answer", "wrong"),
    [(say("network"), False), (say("user_code"), True), (say("user_code", confidence=0.79), False),
     (say("unknown"), False)],
    ids=["an acceptable reading", "wrong and sure", "wrong and unsure", "an abstention"])
def test_wrong_and_confident_needs_both(answer: Answer, wrong: bool) -> None:
    assert score(CASE, answer).wrong_and_confident is wrong


@each(
    ("text", "right"),
    [("[n7:3]: Watchdog  caught collective", True), ("Watchdog", True), ("Wat", False), ("", False), ("hound", False)],
    ids=["contains the label", "is contained in it", "says next to nothing", "says nothing", "says something else"])
def test_a_line_counts_when_either_contains_the_other(text: str, right: bool) -> None:
    assert score(CASE, say("hang", text=text)).line is right


def test_a_host_counts_by_its_short_name_or_among_the_suspects() -> None:
    assert score(CASE, say("hang", host="n7")).host
    assert score(CASE, say("hang", suspects=("n9", "n7.site"))).host
    assert not score(CASE, say("hang", host="n70")).host


def test_what_the_label_does_not_name_is_not_scored() -> None:
    healthy = Case("2", Path("2.log"), "none", frozenset({"none"}), (), (), (), frozenset({"none"}))
    scored = score(healthy, say("hang"))
    assert (scored.line, scored.host, scored.rank) == (None, None, None)
    assert scored.false_alarm and not score(healthy, say("unknown")).false_alarm


def test_less_finds_the_first_error_line(tmp_path: Path) -> None:
    log = tmp_path / "1.log"
    log.write_text("step 1\nan error\nValueError: x\nKeyError\n")
    (answer,) = ask_less([Case("1", log, "user_code", frozenset({"user_code"}), (), (), (), frozenset())])
    assert answer.text == "ValueError: x"

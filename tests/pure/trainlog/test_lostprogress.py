"""An attempt that starts below its checkpoint is found, and no healthy one is stopped for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.run.fold.state import Attempt
from safelaunch.run.lost import has_gone_on, judge
from safelaunch.trainlog.counters import Counter, count, main_counter
from tests.tables import each

FORM = "step # loss"
FIRST = Attempt(1, "7", ("n0",), 0.0, step=220, first_step=1, counter=FORM, checkpoint_step=200, ended="failed")
SECOND = Attempt(2, "7", ("n0",), 9.0, resume_step=200, resume_path="/ckpt/step_200.pt", whole_steps=(200, 180, 160))


def lines(*steps: int, text: str = "step {} loss 2.3", ranks: Sequence[str] = ("[n0:0]: ",)) -> bytes:
    return "".join(f"{rank}{text.format(step)}\n" for step in steps for rank in ranks).encode()


def verdict(
    *texts: bytes, second: Attempt = SECOND, earlier: Sequence[Attempt] = (FIRST,), pattern: str = "auto",
) -> str:
    """stop | warn | "" as the looks go on."""
    counters: tuple[Counter, ...] = ()
    for text in texts:
        counters = count(counters, text, pattern, second.resume_step)
        found = judge(second, earlier, counters)
        if found is not None:
            return "stop" if found.is_sure else "warn"
        if has_gone_on(second, earlier, counters):
            return ""
    return ""


def known_from(*texts: bytes, pattern: str = "auto", **changes: object) -> Attempt:
    """The first attempt, as its log makes it known."""
    counters: tuple[Counter, ...] = ()
    for text in texts:
        counters = count(counters, text, pattern, None)
    main = main_counter(counters)
    assert main is not None
    return replace(FIRST, step=main.last, first_step=main.first, counter="" if main.fell else main.form,
                   **changes)  # type: ignore[arg-type]


BAR = "Epoch 0:  {}%|##        | {}/400 [00:01<00:11,  8.10it/s]"
# What a second attempt says whose checkpoint is of step 200, what the first one had said, and what follows.
CASES: list[tuple[str, str, list[bytes], Sequence[Attempt], Attempt]] = [
    ("goes on", "", [lines(201, 202, 203)], [FIRST], SECOND),
    ("starts from nothing", "stop", [lines(1, 2, 3)], [FIRST], SECOND),
    ("starts from nothing, looked at late", "stop", [lines(*range(1, 240))], [FIRST], SECOND),
    ("starts from nothing, look by look", "stop", [lines(1), lines(2), lines(3)], [FIRST], SECOND),
    ("many ranks start from nothing", "stop",
     [lines(1, 2, 3, ranks=[f"[n{node}:{rank}]: " for node in range(2) for rank in range(8)])], [FIRST], SECOND),
    ("logs each 20 steps, saves each 20", "stop", [lines(0, 20)], [FIRST], SECOND),
    ("two lines are not enough where more come before a save", "", [lines(1, 2)], [FIRST], SECOND),
    ("prints step 0 before it loads", "", [lines(0), lines(201, 202)], [FIRST], SECOND),
    ("says where it goes on from", "", [b"[n0:0]: resumed from step 200\n", lines(201)], [FIRST], SECOND),
    ("stages of its start", "", [lines(1, 2, 3, 4, text="step {}/4: reading the tokens"), lines(201)], [FIRST], SECOND),
    ("stages of its start, and it starts from nothing", "stop",
     [lines(1, 2, 3, 4, text="step {}/4: reading the tokens"), lines(1, 2, 3)], [FIRST], SECOND),
    ("all ranks tell the stages of their start, and start from nothing", "stop",
     [lines(1, 2, 3, 4, text="step {}/4: reading the tokens", ranks=[f"[n0:{rank}]: " for rank in range(64)]),
      lines(1, 2, 3, ranks=[f"[n0:{rank}]: " for rank in range(64)])], [FIRST], SECOND),
    ("evaluates first", "", [lines(1, 2, 3, 4, text="eval step {} loss 2.3"), lines(201)], [FIRST], SECOND),
    ("warms up first", "", [lines(1, 2, 3, text="warmup step {} loss 2.3"), lines(201)], [FIRST], SECOND),
    ("skips through its data", "", [lines(1, 2, 3, text="skipping step {}"), lines(201)], [FIRST], SECOND),
    ("loads an older checkpoint by itself", "warn", [lines(181, 182, 183)], [FIRST], SECOND),
    ("rewinds a few steps, to where its data begin", "warn", [lines(196, 197, 198, 199, 200)], [FIRST],
     replace(SECOND, whole_steps=(200,))),
    ("loads one that is far older, by a path in its script", "stop", [lines(21, 22, 23)], [FIRST], SECOND),
    ("the first attempt of a run, in a folder with checkpoints", "warn", [lines(1, 2, 3)], [], SECOND),
    ("the first attempt ended before its first step", "warn", [lines(1, 2, 3)],
     [replace(FIRST, step=None, counter=None)], SECOND),
    ("counts each epoch anew", "", [lines(1, 2, 3)], [known_from(lines(*range(1, 50), *range(1, 50)))], SECOND),
    ("names count samples, the log steps", "", [lines(1, 2, 3)],
     [replace(FIRST, step=700, checkpoint_step=1_000_000)], replace(SECOND, resume_step=1_000_000,
                                                                   whole_steps=(1_000_000, 500_000))),
    ("starts from nothing a second time, the first was over soon", "stop", [lines(1, 2, 3)],
     [FIRST, replace(FIRST, number=2, step=20, first_step=1, resume_step=200, checkpoint_step=200)], SECOND),
    ("the attempt before was lost, and its last step is not known", "warn", [lines(1, 2, 3)],
     [replace(FIRST, step=9, ended="lost")], SECOND),
    ("the supervisor of the attempt before was lost", "warn", [lines(1, 2, 3)],
     [replace(FIRST, step=58, ended="interrupted")], SECOND),
    ("the log of the attempt before was on a lost node", "warn", [lines(1, 2, 3)],
     [replace(FIRST, step=58, is_log_read=False)], SECOND),
    ("names count epochs, the log their steps", "warn", [lines(1, 2, 3)],
     [replace(FIRST, step=1500, checkpoint_step=9)], replace(SECOND, resume_step=9, whole_steps=(9, 8, 7))),
    ("names tell no step", "warn", [lines(1, 2, 3)], [FIRST], replace(SECOND, resume_step=None)),
    ("names tell no step, and it goes on", "", [lines(201, 202, 203)], [FIRST], replace(SECOND, resume_step=None)),
    ("names tell no step, and the first attempt had no more", "", [lines(1, 2, 3)], [replace(FIRST, step=3)],
     replace(SECOND, resume_step=None)),
    ("names tell no step, and each epoch counts anew", "", [lines(1, 2, 3)], [replace(FIRST, counter="")],
     replace(SECOND, resume_step=None)),
    ("names tell no step, and the run began from one", "", [lines(1, 2, 3)], [replace(FIRST, resume_path="/old.pt")],
     replace(SECOND, resume_step=None)),
    ("has no checkpoint", "", [lines(1, 2, 3)], [FIRST], replace(SECOND, resume_step=None, resume_path=None)),
    ("another counter than before", "", [lines(1, 2, 3, text="iteration {} of data")], [FIRST], SECOND),
    ("went on from an older one, and that worked", "stop", [lines(1, 2, 3)],
     [FIRST, replace(FIRST, number=2, first_step=181, resume_step=180)], SECOND),
    ("a bar starts anew", "warn", [BAR.format(1, 1).encode(), BAR.format(2, 8).encode(), BAR.format(3, 12).encode()],
     [replace(FIRST, counter="bar /400")], SECOND),
    ("a bar goes on", "", [BAR.format(55, 220).encode()], [replace(FIRST, counter="bar /400")], SECOND),
]


@each(
    ("said", "texts", "earlier", "second"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_the_first_steps_say(said: str, texts: list[bytes], earlier: Sequence[Attempt], second: Attempt) -> None:
    assert verdict(*texts, second=second, earlier=earlier) == said


@each(("text", "form"), [
    (b" iteration      100/     1000 | consumed samples: 1600 | lm loss: 2.3E+00 | number of skipped iterations: 0 |",
     "iteration # /1000"),
    (b"[default0]:iter 20: loss 3.1", "iter # loss"),
    (b"{'loss': 0.5, 'step': 20, 'lr': 1e-3}", "loss step #"),
    (b"step: 20  loss: 3.2  tps: 700", "step # loss"),
    (b"2026-11-22 12:00:01 INFO train step=20, skipped=0, lr=[1e-4]", "train step # skipped"),
], ids=lambda value: str(value)[:20])
def test_a_counter_is_known_by_the_words_around_its_number(text: bytes, form: str) -> None:
    (counter,) = count((), text + b"\n", "auto", None)
    assert (counter.form, counter.last) == (form, int(counter.first))


def test_a_pattern_of_ones_own_is_one_counter() -> None:
    first = known_from(lines(1, 100, 220, text="batch={} ce=2"), pattern=r"batch=(\d+)")
    assert verdict(lines(1, 2, 3, text="batch={} ce=2"), earlier=[first], pattern=r"batch=(\d+)") == "stop"


def test_the_verdict_says_what_was_seen() -> None:
    found = judge(SECOND, [FIRST], count((), lines(1, 2, 3), "auto", 200))
    assert found is not None and (found.step, found.resume_step) == (1, 200)
    assert found.why == ("attempt 2 was to go on from step 200 (/ckpt/step_200.pt), and its log counts 1 … 3, as "
                         "attempt 1 did on its way to step 220: the checkpoint was not loaded")


steps = st.lists(st.integers(0, 5000), min_size=1, max_size=40)


@given(st.integers(1, 1000), st.integers(1, 50), st.integers(0, 60), st.integers(1, 25))
def test_a_training_that_goes_on_where_it_should_is_never_accused(
    resume: int, interval: int, more: int, every: int,
) -> None:
    whole = tuple(range(resume, 0, -interval))[:5]
    second = replace(SECOND, resume_step=resume, whole_steps=whole)
    first = replace(FIRST, step=resume + more, checkpoint_step=resume, first_step=min(every, resume + more))
    after = [step for step in range(resume, resume + 200) if step % every == 0][:20]
    texts = [lines(0, text="step {} starting")] + [lines(step, ranks=["[n0:0]: ", "[n1:1]: "]) for step in after]
    assert verdict(*texts, second=second, earlier=[first]) == ""


@given(st.integers(20, 1000), st.integers(10, 50), st.integers(0, 40), st.integers(1, 4), st.integers(1, 7))
def test_one_that_starts_from_nothing_is_stopped_before_it_has_trained_past_a_checkpoint(
    resume: int, interval: int, more: int, every: int, batch: int,
) -> None:
    whole = tuple(range(resume, 0, -interval))[:2]
    second = replace(SECOND, resume_step=resume, whole_steps=whole)
    first = replace(FIRST, step=resume + more, checkpoint_step=resume)
    said = list(range(every, resume + 1, every))
    texts = [lines(*said[at:at + batch]) for at in range(0, len(said), batch)]
    seen = 0
    counters: tuple[Counter, ...] = ()
    for text in texts:
        seen += text.count(b"\n")
        counters = count(counters, text, "auto", resume)
        found = judge(second, [first], counters)
        if found is not None:
            break
    low = [step for step in said if step < resume]
    assert len(low) < 3 or (found is not None and seen <= max(3, batch) + batch)
    assert found is None or found.is_sure == (every < min(whole) and every <= resume / 2)


@given(st.lists(st.binary(max_size=60) | steps.map(lambda found: lines(*found)), max_size=6), st.integers(0, 300),
       st.sampled_from(["auto", r"x=(\d+)"]))
def test_no_log_makes_it_fail(texts: list[bytes], resume: int, pattern: str) -> None:
    verdict(*texts, second=replace(SECOND, resume_step=resume), pattern=pattern)

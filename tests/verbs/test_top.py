"""safelaunch top: its screen by textual's pilot, on runs made by hand and a real local one."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import DataTable, Static, TabbedContent
from textual.worker import WorkerCancelled

from safelaunch.cli import run
from safelaunch.run.io import registry, runfolder
from safelaunch.verbs.top.topscreen import TABS, KeyList, Question, TopScreen
from tests.handmade import Made, make_running
from tests.localruns import SubmitLocal

pytestmark = pytest.mark.timed   # real programs and screens, within real deadlines

HOSTILE = b"[n0:0]: \x1b]52;c;cm0=\x07\x1b[2J[bold red]mark[/] \xff step 12 loss 0.5\n"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = make_running(tmp_path, monkeypatch)
    made.log(1, HOSTILE)
    registry.register(made.dir, "bloom", "1a2b3c4d", "12")
    return made


def on_screen(check: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> None:
    async def play() -> None:
        async with TopScreen().run_test(size=size) as pilot:
            await check(pilot)

    asyncio.run(play())


async def shows(pilot: Pilot[None], pane: str, words: str) -> str:
    """The pane's text, once it has these words."""
    text = ""
    for _ in range(2400):
        text = str(pilot.app.query_one(f"#text-{pane}", Static).render())
        if words in text:
            return text
        await pilot.pause(0.05)
    raise AssertionError(f"{words!r} is not in {text!r}")


async def lists(pilot: Pilot[None], count: int) -> DataTable[object]:
    table: DataTable[object] = pilot.app.query_one(DataTable)
    for _ in range(2400):
        if table.row_count == count:
            return table
        await pilot.pause(0.05)
    raise AssertionError(f"{table.row_count} runs, not {count}")


async def asks(pilot: Pilot[None], wanted: bool) -> None:
    """Returns once a question is on the screen, with its words, or gone."""
    for _ in range(2400):
        screen = pilot.app.screen
        if (isinstance(screen, Question) and bool(screen.query(Static))) == wanted:
            return
        await pilot.pause(0.05)
    raise AssertionError("it asks nothing" if wanted else "it still asks")


def test_a_look_that_was_asked_for_is_not_lost_to_the_clocks(made: Made) -> None:
    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        await pilot.press("5")
        await shows(pilot, "why", "verdict")
        pilot.app.query_one("#text-why", Static).update("r: look")
        assert isinstance(pilot.app, TopScreen)
        pilot.app.look_at_pane(by_hand=True)
        pilot.app.look_at_pane()
        await shows(pilot, "why", "verdict")

    on_screen(check)


@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
def test_a_run_is_listed_and_each_pane_tells_of_it(made: Made, size: tuple[int, int]) -> None:
    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        assert "bloom" in await shows(pilot, "status", "state")
        for key, pane, words in (("2", "log", "step 12"), ("3", "events", "attempt 1 starts"),
                                 ("4", "nodes", "in the attempt"), ("5", "why", "verdict")):
            await pilot.press(key)
            await shows(pilot, pane, words)
            assert pilot.app.query_one(TabbedContent).active == pane

    on_screen(check, size)


def test_what_a_verb_has_said_stays_while_the_list_is_read_again(made: Made) -> None:
    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        await pilot.press("5")
        said = await shows(pilot, "why", "verdict")
        app = pilot.app
        assert isinstance(app, TopScreen)
        is_read = False
        while not is_read:
            with suppress(WorkerCancelled):   # by the look that begins each five seconds
                await app.look_at_runs().wait()
                is_read = True
        await pilot.pause(0.2)
        assert str(app.query_one("#text-why", Static).render()) == said

    on_screen(check)


def test_what_a_job_prints_does_nothing_to_the_screen(made: Made) -> None:
    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        await pilot.press("2")
        text = await shows(pilot, "log", "step 12")
        assert "\x1b" not in text and "\x07" not in text and "[bold red]mark[/]" in text
        for key, pane in (("1", "status"), ("3", "events"), ("4", "nodes")):
            await pilot.press(key)
            text = await shows(pilot, pane, "[bold red]mark[/]")
            assert all(char.isprintable() or char in "\n\t" for char in text)

    why = HOSTILE.decode(errors="surrogateescape")
    made.event("node_suspected", node=why, kind="user_code", why=why)
    made.event("node_excluded", node=why, why=why)
    on_screen(check)


def test_a_line_of_ten_megabytes_does_not_hold_up_the_screen(made: Made) -> None:
    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        await pilot.press("2")
        text = await shows(pilot, "log", "step 13")
        assert len(text) < 10_000 and "word word" in text

    made.log(1, b"word " * 2_000_000 + b"\n[n0:0]: step 13\n")
    on_screen(check)


def test_nothing_is_done_without_a_yes(made: Made) -> None:
    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        for key, answer in zip("kkkKhg", ("n", "escape", "enter") * 2, strict=True):
            await pilot.press(key)
            await asks(pilot, True)
            await pilot.press(answer)
            await asks(pilot, False)
        assert not list((made.dir / "control").iterdir())

    on_screen(check)


def test_log_and_events_stay_at_the_newest_line_unless_a_person_scrolls_up(made: Made) -> None:
    made.log(1, b"".join(b"[n0:0]:step %d loss 0.5\n" % step for step in range(200)))

    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        await pilot.press("2")
        await shows(pilot, "log", "step 199")
        scroll = pilot.app.query_one("#text-log", Static).parent
        assert isinstance(scroll, VerticalScroll) and isinstance(pilot.app, TopScreen)
        for _ in range(2400):
            if scroll.scroll_offset.y and scroll.is_vertical_scroll_end:
                break
            await pilot.pause(0.05)
        else:
            raise AssertionError("the oldest lines are on the screen")
        scroll.scroll_home(animate=False, immediate=True)
        made.log(1, b"".join(b"[n0:0]:step %d loss 0.5\n" % step for step in range(300)))
        pilot.app.look_at_pane()
        await shows(pilot, "log", "step 299")
        await pilot.pause()
        assert scroll.scroll_offset.y == 0

    on_screen(check)


def test_the_keys_are_shown_and_a_stop_says_what_it_would_lose(made: Made) -> None:
    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(pilot.app.screen, KeyList)
        await pilot.press("escape")
        await pilot.press("k")
        await asks(pilot, True)
        said = str(pilot.app.screen.query_one(Static).render())
        assert "End bloom for good?" in said and "resume.dir is not set" in said

    on_screen(check)


def test_no_run_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    async def check(pilot: Pilot[None]) -> None:
        for _ in range(2400):
            if "no run is known" in str(pilot.app.query_one("#note", Static).render()):
                break
            await pilot.pause(0.05)
        else:
            raise AssertionError("it does not say that there is no run")
        await pilot.press("k", "h", "g", "r", *map(str, range(1, len(TABS) + 1)))
        assert not isinstance(pilot.app.screen, Question)

    on_screen(check)


def test_a_run_is_stopped_from_the_screen(
    submit_local: SubmitLocal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = submit_local("--steps 100000 --step-time 0.05")
    training.wait_step(1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    registry.register(training.run_dir, "training", runfolder.load(training.run_dir).plan.run_id, "1")

    async def check(pilot: Pilot[None]) -> None:
        await lists(pilot, 1)
        await pilot.press("k")
        await asks(pilot, True)
        await pilot.press("y")
        for _ in range(2400):
            if (training.run_dir / "control" / "kill").exists():
                return
            await pilot.pause(0.05)
        raise AssertionError("no kill switch was touched")

    on_screen(check)
    assert training.wait_end().how == "stopped"


def test_a_pipe_gets_no_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top"]) == 2
    assert "top needs a terminal" in capsys.readouterr().err


def test_without_textual_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ImportError('no textual')\n")
    main, terminal = pty.openpty()
    words = [sys.executable, "-m", "safelaunch", "top"]
    said = subprocess.run(words, stdout=terminal, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=60, check=False)
    os.close(main)
    os.close(terminal)
    assert said.returncode == 2 and "pip install 'safelaunch[tui]'" in said.stderr

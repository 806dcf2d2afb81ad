"""The screen of `safelaunch top`: a table of runs, and panes on the chosen one. Textual draws; other verbs know.

All that reads files or asks Slurm runs in threads with the deadlines of the verbs, so that no frozen folder freezes the
screen. Foreign text reaches it cleaned, and as text that is not marked up.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from safelaunch.base.io import program
from safelaunch.base.plaintext import clean_lines
from safelaunch.errors import SafelaunchError
from safelaunch.run.io.runfolder import Run
from safelaunch.status.overview import Overview, style_of
from safelaunch.status.rows import tell_loss
from safelaunch.status.table import HEAD, cells_of, names_of
from safelaunch.verbs.common import runs, stopping, talk
from safelaunch.verbs.common.eventwords import describe
from safelaunch.verbs.common.speech import SPEECH
from safelaunch.verbs.control import holding
from safelaunch.verbs.control.release import release
from safelaunch.verbs.logs.attemptlogs import LogChoice
from safelaunch.verbs.logs.eventstream import stream
from safelaunch.verbs.logs.logparts import read_logs
from safelaunch.verbs.overview import runlist, sharedqueue
from safelaunch.verbs.overview.overview import overview
from safelaunch.verbs.overview.runlist import Listing
from safelaunch.verbs.status.status import every, plain

LIST_S, PANE_S = 5.0, 2.0
ASK_EVERY_S = 60.0       # squeue, for all runs together, as `status --watch`
VERB_S = 60.0            # of why and stacks
LOG_LINES, EVENTS = 300, 200
LOG_PARTS = 4            # of a MiB each: lines can have millions of letters
LINE_CHARS = 2000        # the screen is laid out anew every PANE_S
TABS = {"status": "Status", "log": "Log", "events": "Events", "nodes": "Nodes", "why": "Why", "stacks": "Stacks"}
NEWEST_LAST = ("log", "events")   # panes that stay at their end, unless a person has scrolled up
VERBS = ("why", "stacks")   # panes that a verb fills, when they are opened or refreshed by hand


class Question(ModalScreen[bool]):
    """Asks before something is done."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"), Binding("n,escape,enter", "dismiss(False)", "no")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """The question, and what answers it."""
        yield Vertical(Static(Text(f"{self._text}\n\ny: yes    n: no")), id="question")


class KeyList(ModalScreen[None]):
    """What the keys do."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,question_mark", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        """One line for each."""
        keys = [("up, down", "choose a run"), ("1 … 6", f"open a pane: {', '.join(TABS.values())}"),
                ("tab", "go to the panes, where up, down, page up, page down and end scroll"),
                ("r", "look again; in Why and Stacks: ask"), ("k", "ask the run to save and end"),
                ("K", "kill it at once"), ("h", "hold it, or let it go on"), ("g", "give back nodes that it keeps"),
                ("?", "these keys"), ("q", "quit")]
        lines = [*(f"{key:<10}{what}" for key, what in keys), "", "escape: close"]
        yield Vertical(Static(Text("\n".join(lines))), id="question")


class TopScreen(App[None]):
    """The table above, the panes below."""

    TITLE = "safelaunch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #runs { height: 1fr; min-height: 4; }
    #panes { height: 2fr; }
    #question { width: 74; height: auto; padding: 1 2; border: round $warning; background: $surface; }
    Question, KeyList { align: center middle; }
    #note { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"), Binding("question_mark", "show_keys", "keys", key_display="?"),
        Binding("r", "refresh", "refresh"),
        *(Binding(str(number), f"pane('{name}')", show=False) for number, name in enumerate(TABS, 1)),
        Binding("k", "stop('kill')", "stop"), Binding("K", "stop('kill-now')", "kill now"),
        Binding("h", "hold", "hold or resume"), Binding("g", "release", "give nodes back"),
    ]

    def __init__(self, is_all: bool = False, with_team: bool = False) -> None:
        super().__init__()
        self._is_all, self._with_team = is_all, with_team
        self._ask = every(ASK_EVERY_S, sharedqueue.ask)
        self._dirs: list[str] = []
        self._marked: str | None = None

    def compose(self) -> ComposeResult:
        """All parts."""
        yield DataTable(id="runs", cursor_type="row")
        yield Static(id="note")
        with TabbedContent(id="panes"):
            for number, (name, title) in enumerate(TABS.items(), 1):
                with TabPane(f"{number} {title}", id=name), VerticalScroll():
                    yield Static(id=f"text-{name}")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one(DataTable).add_columns(*HEAD)
        self.query_one(DataTable).focus()
        self._show_newest()
        self.set_interval(LIST_S, self.look_at_runs)
        self.set_interval(PANE_S, self.look_at_pane)
        self.look_at_runs()

    # --- looking ---

    @work(thread=True, exclusive=True, group="runs")
    def look_at_runs(self) -> None:
        """Read the list of runs."""
        try:
            listing = runlist.collect(self._is_all, self._with_team, self._ask)
        except SafelaunchError as error:
            self.call_from_thread(self._note, error.message)
            return
        self.call_from_thread(self._show_runs, listing)

    def look_at_pane(self, by_hand: bool = False) -> None:
        """Fill the pane that is open."""
        pane, folder = self._chosen()
        # A worker that has nothing to do would take the place of one that has: they are exclusive.
        if folder is None or (pane in VERBS and not by_hand):
            return
        if pane in VERBS:
            self._fill(pane, "…")
        self._read_pane(pane, folder)

    @work(thread=True, exclusive=True, group="pane")
    def _read_pane(self, pane: str, folder: str) -> None:
        try:
            text = _READERS[pane](runs.load(folder))
        except SafelaunchError as error:
            text = error.message
        self.call_from_thread(self._fill, pane, clean_lines(text))

    def _chosen(self) -> tuple[str, str | None]:
        if not self.query(DataTable):   # the screen is being closed
            return "", None
        row = self.query_one(DataTable).cursor_row
        return self.query_one(TabbedContent).active, self._dirs[row] if 0 <= row < len(self._dirs) else None

    def _show_runs(self, listing: Listing) -> None:
        if not self.query(DataTable):   # the screen is being closed
            return
        table = self.query_one(DataTable)
        chosen = self._chosen()[1]
        self._dirs = [one.run_dir for one in listing.briefs]
        table.clear()
        for one, name in zip(listing.briefs, names_of(listing.briefs), strict=True):
            style = "red" if one.is_stale else style_of(one)
            table.add_row(*(Text(talk.clean(cell), style) for cell in cells_of(one._replace(name=name), SPEECH)))
        if chosen in self._dirs:
            table.move_cursor(row=self._dirs.index(chosen))
        self._note("; ".join(runlist.notes(listing)) or ("" if self._dirs else "no run is known"))
        self.look_at_pane()

    def _fill(self, pane: str, text: str) -> None:
        for one in self.query(f"#text-{pane}").results(Static):   # none, where the screen is being closed
            one.update(Text(text))

    def _show_newest(self) -> None:
        """Empty the panes that stay at their end, and go there."""
        for pane in NEWEST_LAST:
            self._fill(pane, "…")
            self.query_one(f"#{pane} VerticalScroll", VerticalScroll).anchor()

    def _note(self, text: str) -> None:
        for one in self.query("#note").results(Static):
            one.update(Text(talk.clean(text)))

    def on_data_table_row_highlighted(self) -> None:
        """Another run is chosen: what a verb has said is of the one before. A list that is read again marks its row
        anew.
        """
        chosen = self._chosen()[1]
        if chosen is None or chosen == self._marked:
            return
        self._marked = chosen
        self._show_newest()
        for pane in VERBS:
            self._fill(pane, "r: look")
        self.look_at_pane()

    def on_tabbed_content_tab_activated(self) -> None:
        """Another pane is open."""
        self.look_at_pane(by_hand=True)

    def action_pane(self, name: str) -> None:
        """Open a pane."""
        self.query_one(TabbedContent).active = name

    def action_refresh(self) -> None:
        """Look again, also by the verbs."""
        self.look_at_runs()
        self.look_at_pane(by_hand=True)

    # --- acting ---

    def action_stop(self, name: str) -> None:
        """End the run for good."""
        folder = self._chosen()[1]
        if folder is not None:
            self._ask_to_stop(folder, name)

    @work(thread=True, exclusive=True, group="ask")
    def _ask_to_stop(self, folder: str, name: str) -> None:
        """With what would be lost, which takes a look at the checkpoints."""
        how = ("It is asked to save and to end; if it cannot save:" if name == "kill" else
               "It is killed at once, without a checkpoint:")
        try:
            loss = tell_loss(_overview(runs.load(folder)), SPEECH)
        except SafelaunchError as error:
            loss = error.message
        self.call_from_thread(self._ask_and, f"End {{}} for good? {how} {loss.replace('{', '{{').replace('}', '}}')}.",
                              lambda run: _said(lambda say: stopping.stop(run.dir, name, None, say)), folder)

    def action_hold(self) -> None:
        """Start no new attempt, or go on."""
        self._ask_and("Hold {}, or let it go on if it is on hold?", _hold_or_resume)

    def action_release(self) -> None:
        """Give back nodes that are kept."""
        self._ask_and("Give back the nodes that {} keeps for inspection?", release)

    def action_show_keys(self) -> None:
        """Show what the keys do."""
        self.push_screen(KeyList())

    def _ask_and(self, question: str, act: Callable[[Run], str], folder: str | None = None) -> None:
        folder = folder or self._chosen()[1]
        if folder is None:
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._act(folder, act)

        self.push_screen(Question(talk.clean(question.format(Path(folder).name))), answered)

    @work(thread=True, group="act")
    def _act(self, folder: str, act: Callable[[Run], str]) -> None:
        try:
            said = act(runs.load(folder))
        except SafelaunchError as error:
            said = error.message
        self.call_from_thread(self.notify, Text(clean_lines(said)).plain, timeout=10, markup=False)
        self.call_from_thread(self.action_refresh)


def _said(act: Callable[[Callable[[str], None]], object]) -> str:
    sentences: list[str] = []
    act(sentences.append)
    return "\n".join(sentences)


def _hold_or_resume(run: Run) -> str:
    return (holding.resume(run) if (run.dir / "control" / "hold").exists() else holding.hold(run, "")).sentence


def _overview(run: Run) -> Overview:
    return overview(run, runs.ask_scheduler(run, with_times=True), time.time())


def _status(run: Run) -> str:
    return plain(_overview(run))


def _log(run: Run) -> str:
    choice = LogChoice(run, None, None, None, None)
    parts = deque((data for _, data in read_logs(choice, choice.logs(run.state()), LOG_LINES)), maxlen=LOG_PARTS)
    lines = b"".join(parts).decode(errors="replace").split("\n")
    return "\n".join(line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} …" for line in lines)


def _events(run: Run) -> str:
    events = [event for some in stream(run, False, False, talk.hush) for event in some][-EVENTS:]
    return "\n".join(f"{talk.moment(event.t, time.time())}  {event.host:<10}  {describe(event)}" for event in events)


def _nodes(run: Run) -> str:
    state = run.state()
    attempt = set(state.attempt.nodes) if state.attempt is not None and state.attempt.ended is None else set()
    lines = [f"{node:<20} {'in the attempt' if node in attempt else 'not used now'}"
             for node in (state.job.nodes if state.job is not None else ())]
    lines += [f"{node:<20} suspect: {why}" for node, why in state.suspects]
    lines += [f"{one.node:<20} excluded: {one.why}" for one in state.exclusions]
    return "\n".join(lines) or "no job has started"


def _verb(verb: str) -> Callable[[Run], str]:
    def ask(run: Run) -> str:
        ended = program.run([sys.executable, "-m", "safelaunch", verb, str(run.dir)], VERB_S, env=os.environ)
        said = (ended.out + ended.err).decode(errors="replace")
        return said if ended.code is not None else f"{said}\n{verb} did not answer within {VERB_S:.0f} s"
    return ask


_READERS: dict[str, Callable[[Run], str]] = {
    "status": _status, "log": _log, "events": _events, "nodes": _nodes, "why": _verb("why"), "stacks": _verb("stacks")}

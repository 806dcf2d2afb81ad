"""What verbs answer of a run whose journal calls it alive, and whose job is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelaunch.cli import run
from tests.handmade import fake_command, make_running
from tests.tables import each

LOST = "Slurm no longer knows job 12, and the journal has no end: no job goes on with the run"


@each(("verb", "queue", "code", "said"), [
    ("restart", "", 2, f"nothing runs that could be restarted: {LOST}; to queue one: safelaunch watch --once"),
    ("save", "", 2, f"nothing runs that could save: {LOST}"),
    ("restart", "12|PENDING|root|bloom.1a2b3c4d|BeginTime|", 2,
     "nothing runs that could be restarted: job 12 is waiting to be scheduled"),
    ("hold", "", 0, "bloom is on hold: nothing is started, and Slurm knows no job of it"),
    ("stop", "", 0, "bloom is stopped: Slurm knows no job of it"),
], ids=["restart", "save", "restart of one that was requeued", "hold", "stop"])
def test_no_verb_speaks_of_an_attempt_that_nobody_runs(
    verb: str, queue: str, code: int, said: str, tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        place: Path = tmp_path_factory.mktemp(verb)
        make_running(place, patch)
        fake_command(place / "bin", "squeue", f"echo '{queue}'")
        assert run([verb, "bloom"]) == code
        told = capsys.readouterr()
        assert said in told.out + told.err

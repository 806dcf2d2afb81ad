"""Which old runs may be deleted, and why the others stay."""

from __future__ import annotations

from safelaunch.verbs.control.cleanplan import OldRun, is_own_name, may_go_with_checkpoints, why_kept
from tests.tables import each

NOW, DAY = 1e9, 86400.0
OLD = OldRun("/r/a", "a", "completed", NOW - 40 * DAY, resume="/r/a/ckpt")
LIVES = OldRun("/r/b", "b")


@each(("run", "others", "checkpoints", "why"), [
    (OLD, (LIVES,), False, None),
    (OLD, (LIVES,), True, None),
    (OLD._replace(how=""), (), False, "it has not ended"),
    (OLD._replace(ended_t=NOW - DAY), (), False, "too short a time ago"),
    (OLD._replace(trouble="/r/a belongs to bob"), (), False, "/r/a belongs to bob"),
    (OLD, (LIVES._replace(resume="/r/a/ckpt"),), False, "the checkpoints of b, which has not ended, lie in it"),
    (OLD, (LIVES._replace(resume="/r/a"),), False, "lie in it"),
    (OLD, (LIVES._replace(resume="/r/abc"),), False, None),
    (OLD, (LIVES._replace(resume="/r/a/ckpt", how="gave_up"),), False, None),
    (OLD, (LIVES._replace(after=("/r/a",)),), False, "b, which has not ended, waits for it"),
    (OLD._replace(resume="/r/a/attempts/ckpt"), (), False, "among safelaunch's own files"),
    (OLD._replace(resume="/scratch/c"), (LIVES._replace(resume="/scratch/c"),), False, None),
    (OLD._replace(resume="/scratch/c"), (LIVES._replace(resume="/scratch/c"),), True, "has the same resume.dir"),
    (OLD, (OldRun("/r/c", trouble="its folder does not answer", resume="/r/a/ckpt"),), False, "/r/c, which has not"),
], ids=["old", "old, with checkpoints", "it lives", "young", "another user's", "its checkpoints are in use",
        "its folder is in use", "a name that begins alike", "its user has ended", "it is waited for", "mixed",
        "elsewhere, and they stay", "elsewhere, and they were to go", "a frozen run may use it"])
def test_only_what_has_ended_and_is_of_no_use_to_a_living_run_goes(
    run: OldRun, others: tuple[OldRun, ...], checkpoints: bool, why: str | None
) -> None:
    said = why_kept(run, (run, *others), NOW, 30 * DAY, with_checkpoints=checkpoints)
    assert (said is None) if why is None else (said is not None and why in said), said


def test_an_age_of_nothing_still_leaves_the_last_words_their_time() -> None:
    assert why_kept(OLD._replace(ended_t=NOW - 60), (), NOW, 0.0, with_checkpoints=False) is not None


@each(("resume", "expected"), [
    ("/r/a/ckpt", True), ("/r/a", False), ("/r/a/out/ckpt", False), ("/r/a/control", False), ("/scratch/ckpt", False),
    ("", False)])
def test_checkpoints_go_only_as_a_folder_of_their_own_in_the_runs(resume: str, expected: bool) -> None:
    assert may_go_with_checkpoints(OLD._replace(resume=resume)) is expected


@each(("name", "expected"), [
    ("run.json", True), ("slurm-12.out", True), ("slurm-12.standby-n1.out", True), ("attempts", True), ("ckpt", False),
    ("results.csv", False), ("slurm-notes.txt", False), (".git", False)])
def test_what_the_training_has_made_is_no_own_name(name: str, expected: bool) -> None:
    assert is_own_name(name) is expected

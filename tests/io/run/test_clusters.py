"""Two clusters on one home: evidence against a node counts on its own cluster, and a name that a cluster does not know
holds up no submission there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from safelaunch.run.io import runfolder
from safelaunch.sandbox.cluster import Sandbox
from tests.runs import Installation
from tests.sandboxes import make_workdir, new_sandbox

TRAIN = "name: {name}\ncommand: sleep 60\nslurm: {{nodes: 1, time: 5{more}}}\nlaunch: {{with: srun}}\n"


class Home:
    """Two small clusters and one home: n2 and n3 are nodes of `big` alone."""

    def __init__(self, small: Sandbox, big: Sandbox, installation: Installation) -> None:
        self.small, self.big = small, big
        self.state = make_workdir(small, "home")
        self.argv, self.env = installation.argv, {**installation.env, "XDG_STATE_HOME": str(self.state)}

    def type(self, sandbox: Sandbox, *words: str, cwd: Path | None = None) -> tuple[int, str, str]:
        done = sandbox.run([*self.argv, *words], cwd=cwd or self.state, env=self.env)
        return done.returncode, done.stdout, done.stderr

    def submit(self, sandbox: Sandbox, name: str, more: str = "") -> tuple[int, str, str]:
        """`safelaunch submit --json` in a folder of its own; the job stays in the queue."""
        folder = make_workdir(sandbox)
        (folder / "train.yaml").write_text(TRAIN.format(name=name, more=more))
        return self.type(sandbox, "submit", "train.yaml", "--json", cwd=folder)

    def excluded(self, sandbox: Sandbox, told: str) -> str:
        job = json.loads(told)["job"]
        return sandbox.slurm(["squeue", "--noheader", f"--jobs={job}", "--format=%x"]).strip()


@pytest.fixture(scope="module")
def clusters(slurm_here: None) -> Iterator[tuple[Sandbox, Sandbox]]:
    small = new_sandbox(2, gpus=0)
    try:
        big = new_sandbox(4, gpus=0)
        try:
            for sandbox in (small, big):   # jobs stay in the queue
                sandbox.slurm(["scontrol", "update", "PartitionName=main", "State=DOWN"])
            yield small, big
        finally:
            big.down()
    finally:
        small.down()


@pytest.fixture
def home(clusters: tuple[Sandbox, Sandbox], installation: Installation) -> Iterator[Home]:
    home = Home(*clusters, installation)
    yield home
    (home.state).rename(home.state.with_name(f"{home.state.name}-{uuid.uuid4().hex}"))


def suspect(home: Home, sandbox: Sandbox, nodes: str) -> None:
    code, _, said = home.type(sandbox, "nodes", "suspect", nodes, "--why", "its fan is loud")
    assert code == 0, said


def test_a_suspect_that_this_cluster_does_not_know_holds_up_no_submission(home: Home) -> None:
    suspect(home, home.big, "n3")

    code, told, said = home.submit(home.small, "stranger")

    assert code == 0, said
    assert home.excluded(home.small, told) == ""
    assert "not excluded: n3" not in said, "evidence of another cluster is no news here"


def test_evidence_counts_on_its_own_cluster_and_on_no_other(home: Home) -> None:
    suspect(home, home.big, "n1")

    code, told, said = home.submit(home.small, "here")
    assert code == 0 and "excluded" not in said, said
    assert home.excluded(home.small, told) == ""
    code, told, said = home.submit(home.big, "there")
    assert code == 0 and "excluded: n1" in said, said
    assert home.excluded(home.big, told) == "n1"

    shown = json.loads(home.type(home.small, "nodes", "--json")[1])
    assert (shown["cluster"], shown["other_clusters"], shown["nodes"]) == (home.small.name, [home.big.name], [])
    assert home.big.name in home.type(home.small, "nodes")[2]
    (node,) = json.loads(home.type(home.big, "nodes", "--json")[1])["nodes"]
    assert (node["node"], node["is_known"]) == ("n1", True)


def test_old_evidence_without_a_cluster_is_left_out_with_a_word_where_no_node_has_its_name(home: Home) -> None:
    folder = home.state / "safelaunch" / "nodes"
    home.type(home.big, "nodes", "suspect", "n3", "--why", "its fan is loud")
    for path in folder.iterdir():   # as it was written before clusters were
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({key: value for key, value in line.items() if key != "cluster"},
                                           separators=(",", ":")) + "\n" for line in lines))

    code, told, said = home.submit(home.small, "old")
    assert code == 0 and "not excluded: n3" in said, said
    run_dir = Path(json.loads(told)["run_dir"])
    assert [event.data["node"] for event in runfolder.load(run_dir).journal().events
            if event.event == "node_left_out"] == ["n3"]
    assert "n3" not in home.type(home.small, "status", str(run_dir))[1], "no node of this cluster"

    code, told, said = home.submit(home.big, "old")
    assert code == 0 and home.excluded(home.big, told) == "n3", said
    suspect(home, home.small, "n1")   # from now on the old line may be of either cluster
    code, told, said = home.submit(home.big, "older")
    assert code == 0 and home.excluded(home.big, told) == "", said


def test_a_name_of_the_users_own_that_the_cluster_does_not_know_is_named(home: Home) -> None:
    code, _, said = home.submit(home.small, "own", ', exclude: "n1,n7"')

    assert code == 3 and "slurm.exclude" in said and "n7" in said and "n1," not in said, said


def test_the_same_job_id_on_two_clusters_means_that_of_the_cluster_here(home: Home) -> None:
    mine, other = (json.loads(home.submit(sandbox, "twin")[1]) for sandbox in (home.small, home.big))
    registry = home.state / "safelaunch" / "runs.jsonl"
    registry.write_text(registry.read_text().replace(f'"job":"{other["job"]}"', f'"job":"{mine["job"]}"'))

    told = json.loads(home.type(home.small, "status", mine["job"], "--json")[1])
    assert told["run_dir"] == mine["run_dir"]
    told = json.loads(home.type(home.big, "status", mine["job"], "--json")[1])
    assert told["run_dir"] == other["run_dir"]
    registry.write_text(registry.read_text().replace(f'"cluster":"{home.small.name}"', '"cluster":"third"'))
    registry.write_text(registry.read_text().replace(f'"cluster":"{home.big.name}"', '"cluster":"fourth"'))
    code, _, said = home.type(home.small, "status", mine["job"])
    assert code == 2 and "may mean 2 runs" in said, said


def test_a_submission_to_another_cluster_by_the_environment_is_refused(home: Home) -> None:
    folder = make_workdir(home.small)
    (folder / "train.yaml").write_text(TRAIN.format(name="wrong", more=""))

    done = home.small.run([*home.argv, "submit", "train.yaml"], cwd=folder, env={**home.env, "SLURM_CLUSTERS": "other"})

    assert done.returncode == 2 and "SLURM_CLUSTERS=other" in done.stderr, done.stderr


def test_a_run_of_another_cluster_is_left_to_it(home: Home) -> None:
    run_dir = json.loads(home.submit(home.big, "far")[1])["run_dir"]
    for sandbox in (home.small, home.big):
        assert home.type(sandbox, "watch", "--once")[0] == 0
    assert {path.name for path in (home.state / "safelaunch").glob("watch*")} == {
        f"watch-{home.small.name}.json", f"watch-{home.big.name}.json"}
    assert "far" not in home.type(home.small, "watch", "--once")[1]

    for _ in range(2):   # a person names it, and this Slurm knows no job of it
        code, told, said = home.type(home.small, "watch", "--once", run_dir)
        assert code == 0 and f"belongs to cluster {home.big.name}" in told, said
    assert f"are on cluster {home.big.name}, and this is {home.small.name}" in home.type(
        home.small, "status", run_dir)[1]
    code, _, said = home.type(home.small, "stop", run_dir)
    assert code == 4 and home.big.name in said, said
    assert home.excluded(home.big, json.dumps({"job": runfolder.load(Path(run_dir)).state().jobs[0].id})) == ""


def test_a_submission_that_was_cut_off_is_finished_on_its_own_cluster_only(home: Home) -> None:
    run_dir = Path(json.loads(home.submit(home.big, "torn")[1])["run_dir"])
    for path in (run_dir / "journal").iterdir():
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if '"event":"submitted"' not in line))

    code, _, said = home.type(home.small, "submit", "train.yaml", cwd=run_dir.parent.parent)
    assert code == 2 and f"a submission to cluster {home.big.name}" in said, said
    code, _, said = home.type(home.big, "submit", "train.yaml", cwd=run_dir.parent.parent)
    assert code == 0 and "looking for its job" in said, said


@pytest.fixture
def half(home: Home) -> Iterator[str]:
    """A partition of `big` with n0 and n1 alone, whose jobs wait."""
    home.big.slurm(["scontrol", "create", "PartitionName=half", "Nodes=n[0-1]", "State=DOWN"])
    yield "half"
    home.big.slurm(["scancel", "--partition=half"])   # slurmctld keeps a partition that has jobs
    home.big.slurm(["scontrol", "delete", "PartitionName=half"])


def test_a_suspect_of_another_partition_is_not_excluded_and_is_worth_no_message(home: Home, half: str) -> None:
    suspect(home, home.big, "n[1,3]")

    code, told, said = home.submit(home.big, "part", f", partition: {half}")

    assert code == 0 and home.excluded(home.big, told) == "n1", said
    assert "n3" not in said


def test_a_suspect_is_used_where_the_partitions_other_node_is_drained(home: Home, half: str) -> None:
    suspect(home, home.big, "n0")
    home.big.slurm(["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=its fan is loud"])

    code, told, said = home.submit(home.big, "drained", f", partition: {half}")
    assert code == 0 and home.excluded(home.big, told) == "" and "not excluded: n0" in said, said

    home.big.slurm(["scontrol", "update", "NodeName=n1", "State=RESUME"])
    home.big.wait_idle()
    code, told, said = home.submit(home.big, "resumed", f", partition: {half}")
    assert code == 0 and home.excluded(home.big, told) == "n0", said

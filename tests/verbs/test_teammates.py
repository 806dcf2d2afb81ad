"""What a teammate sees and may do: the members of kill_switch.group read a run of somebody else's, and end it."""

from __future__ import annotations

import grp
import json
import pwd
import re
from pathlib import Path

from safelaunch.sandbox.cluster import Sandbox
from safelaunch.sandbox.users import TEAM
from tests.runs import Drill, Installation
from tests.users import open_paths, read_all

BOB = "sl-bob"
YAML = """\
name: team
command: {trainer} --steps 100000 --step-time 0.05 --die-at 6 --die-rank -1 --exit-code 3 --ckpt ckpt ${{RESUME_ARGS}}
slurm: {{nodes: 2, time: 30}}
launch: {{with: srun}}
resume: {{dir: ckpt, format: torch, args: "--load {{path}}"}}
env: {{PLAIN: marker-of-this-run}}
kill_switch: {{group: sl-team, grace: 3s}}
"""


def submitted_by_a_careful_person(sandbox: Sandbox, installation: Installation, workdir: Path) -> Drill:
    """A run of sl-alice, whose umask lets nobody else read; Slurm gives it to the job as well."""
    (workdir / "train.yaml").write_text(YAML.format(trainer=installation.trainer))
    words = ["bash", "-c", 'umask 077; exec "$@"', "bash", *installation.argv, "submit", "train.yaml", "--json"]
    done = sandbox.run(words, cwd=workdir, env=installation.env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return Drill(sandbox, installation, workdir, Path(told["run_dir"]), told["job"], [done.stderr])


def by_bob(drill: Drill, verb: str, *words: str) -> str:
    """What a verb prints for sl-bob."""
    done = drill.as_user(verb, str(drill.run_dir), *words, user=BOB)
    # 124: the supervisor has had no turn for six seconds, and sees the stop later.
    assert done.returncode in ((0, 124) if verb == "stop" else (0,)), f"{verb}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_teammate_sees_how_the_run_is_doing_and_stops_it(
    sandbox: Sandbox, installation: Installation, workdir: Path
) -> None:
    drill = submitted_by_a_careful_person(sandbox, installation, workdir)
    drill.wait_event("attempt_started", 2)
    drill.wait_step(8, attempt=2)

    status = json.loads(by_bob(drill, "status", "--json"))
    assert (status["state"], status["attempts"], status["journal_problems"]) == ("running", 2, []), status
    assert status["step"] >= 8 and status["slurm"]["jobs"], status
    elsewhere = sandbox.run([*installation.argv, "status", drill.job, "--json"], user=BOB, cwd=Path("/"),
                            env=installation.env)
    assert json.loads(elsewhere.stdout)["run_dir"] == str(drill.run_dir), elsewhere.stderr
    team = sandbox.run([*installation.argv, "status", "--team", "--json"], user=BOB, cwd=Path("/"),
                       env=installation.env)
    assert [(one["owner"], one["state"]) for one in json.loads(team.stdout)["runs"]
            if one["job"] == drill.job] == [("sl-alice", "running")], team.stdout + team.stderr
    stacks = drill.as_user("stacks", str(drill.run_dir), user=BOB)
    assert stacks.returncode == 2 and "only sl-alice may look at the ranks of team" in stacks.stderr, stacks.stderr
    log = by_bob(drill, "logs")
    assert "step 5 loss" in log and "step 8 loss" in log
    told = by_bob(drill, "events").splitlines()
    begin, end = (next(number for number, line in enumerate(told) if words in line)
                  for words in ("attempt 1 failed", "attempt 2 starts"))
    assert re.search("attempt 1 failed( at step [0-9]+)?, exit code 3", told[begin])
    assert end - begin < 4, "a restart is four lines at most"

    by_bob(drill, "stop")
    waited = drill.as_user("wait", str(drill.run_dir), "--timeout", "120s", user=BOB, timeout_s=180)
    assert waited.returncode == 12, waited.stderr
    state = drill.wait_end()
    assert state.ended and BOB in state.ended.why
    assert open_paths(drill.run_dir, 0o027) == ["control 3770"]


def test_a_teammate_reads_all_that_the_run_writes_but_no_value_of_env_and_touches_nothing(
    sandbox: Sandbox, installation: Installation, workdir: Path
) -> None:
    drill = submitted_by_a_careful_person(sandbox, installation, workdir)
    drill.wait_event("attempt_started", 2)
    drill.wait_event("verdict")
    for act in ("cat submit.env", "touch journal/mine", "touch claims/9", "touch run.json", "touch attempts/0009"):
        done = sandbox.run(["bash", "-c", act], user=BOB, cwd=drill.run_dir)
        assert "Permission denied" in done.stderr, act
    by_bob(drill, "stop", "--now")
    drill.wait_end()
    bob, team = pwd.getpwnam(BOB).pw_uid, grp.getgrnam(TEAM).gr_gid
    seen, stranger = read_all(drill.run_dir, bob, team), read_all(drill.run_dir, bob, bob)
    files = {str(path.relative_to(drill.run_dir)) for path in drill.run_dir.rglob("*") if path.is_file()}
    closed = {name for name in files - set(seen) if not name.startswith("slurm-")}   # those have the strict umask
    assert closed == {"job.sbatch", "submit.env"}
    assert {"attempts/0001/main.log", "attempts/0001/verdict.json", "attempts/0001/launch.sh"} < set(seen)
    assert [name for name, content in seen.items() if b"marker-of-this-run" in content] == []
    assert b"marker-of-this-run" in (drill.run_dir / "job.sbatch").read_bytes()
    assert stranger == {}

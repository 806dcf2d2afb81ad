"""The run folder as submit makes it, cheaply: config, plan and script are made once for each shape of run."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.run import noticewords as words
from safelaunch.run import plan as plans
from safelaunch.run.io import journal
from safelaunch.run.plan import Plan
from safelaunch.script import script
from safelaunch.script.io import sitefiles
from tests.simulation.resizing import FIRST_STEP_S, WAIT_S

if TYPE_CHECKING:
    from tests.simulation.sim import Sim

RUN_ID = "0000cafe"
PLACE = "/simulated/run"
YAML = """\
name: sim
command: python train.py ${{RESUME_ARGS}}
run_dir: {place}
cluster: slurm
slurm: {{nodes: {nodes}, time: {limit}, ntasks_per_node: 1}}
launch: {{with: srun}}
resume: {{dir: ckpt, format: pattern, pattern: "step_{{step}}.json", args: "--load {{path}}"}}
kill_switch: {{grace: 30s}}
restart: {{via: {via}{restart}}}
{more}
"""


@functools.lru_cache(maxsize=256)
def _texts(nodes: int, spare: int, limit_min: int, standby: bool, via: str, preserve_s: float,
           after_failure: str, notify: str, slow_then: str, has_nan: bool, allreduce: bool,
           min_nodes: int, before_resize: str) -> tuple[str, str]:
    """run.json and job.sbatch, with PLACE for the run folder."""
    more = (f"spare_nodes: {spare}\n" if spare else "") + f"standby: {'true' if standby and nodes > 1 else 'false'}\n"
    if preserve_s:
        more += f"preserve_site: {{for: {preserve_s:.0f}s, when: [unknown, user_code, hang]}}\n"
    if after_failure:
        more += (f"checks: {{boot: true, after_failure: {after_failure}, "
                 f"{'allreduce: true, timeout: 60s' if allreduce else 'timeout: 20s'}}}\n")
    if notify:
        more += f"notify: {{to: [env:URL], when: [{', '.join(words.WORDS)}]}}\n"
    if has_nan:
        more += "on_nan: previous_checkpoint\n"
    if slow_then != "report":
        more += f"slow: {{then: {slow_then}}}\n"
    if min_nodes:
        more += f"min_nodes: {min_nodes}\nhang: {{first_step: {FIRST_STEP_S}s}}\n"
    if before_resize:
        more += "before_resize: convert\n"
    restart = f", wait_for_nodes: {WAIT_S}s" if min_nodes else ""
    text = YAML.format(place=PLACE, nodes=nodes, limit=limit_min, more=more, via=via, restart=restart)
    config: dict[str, Any] = dict(resolve([ConfigLayer("file", "train.yaml", text)], [], {}, base_dir="/").config)
    meta = {"v": 1, "run_id": RUN_ID, "name": "sim", "cwd": "/", "config": config}
    plan = plans.of_config(config, RUN_ID)
    job = script.render(sitefiles.read_template(None), plan, python="/usr/bin/python3", library=())
    return json.dumps(meta), job[:job.index("# >>> values")]   # the fake sbatch reads its #SBATCH lines only


def make_run(sim: Sim) -> Plan:
    """The folder, as run.io.runfolder.create leaves it."""
    scenario = sim.scenario
    meta, job = _texts(scenario.nodes, scenario.spare_nodes, scenario.limit_min, scenario.standby, scenario.via,
                       scenario.preserve_s, scenario.after_failure if scenario.has_checks else "", scenario.notify,
                       scenario.slow_then, bool(scenario.nan), scenario.allreduce, scenario.min_nodes,
                       scenario.before_resize)
    for name in ("journal", "attempts", "claims", "control"):
        (sim.run_dir / name).mkdir(parents=True)
    sim.checkpoints.mkdir(parents=True)
    meta = sim.before.add_to(meta.replace(PLACE, str(sim.run_dir)))
    (sim.run_dir / "run.json").write_text(meta)
    (sim.run_dir / "job.sbatch").write_text(job.replace(PLACE, str(sim.run_dir)))
    (sim.run_dir / "submit.env").write_bytes(b"PATH=/usr/bin")
    raw = json.loads(meta)
    return plans.of_config(raw["config"], raw["run_id"])


def write_submitted(sim: Sim, job: str) -> None:
    """The submitter's lines in the journal, and its claim."""
    writer = journal.Writer(journal.Direct(sim.run_dir), 0, "login", sim.wall_t, 1)
    journal.Direct(sim.run_dir).publish("claims/1", journal.render_claim(0, "login", "submit", sim.wall_t(), 1))
    writer.write(writer.event("intent", claim=1, act="submit"), writer.event("outcome", claim=1, act="submit", ok=True),
                 writer.event("submitted", job=job, name=sim.plan.job_name))

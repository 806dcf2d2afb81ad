"""The leader's birth: it opens the guards' door, learns all from the journal, and takes over what lives."""

from __future__ import annotations

import json

from safelaunch.adapters import journal, runfolder
from safelaunch.adapters.fence import Fencer
from safelaunch.adapters.successor import Successor
from safelaunch.core import decide
from safelaunch.core import plan as plans
from safelaunch.core.state import fold
from safelaunch.lead import endings, watch
from safelaunch.lead.attempts import GUARD, ask_addresses, checkpoint_events
from safelaunch.lead.leader import Leader


def boot(lead: Leader) -> None:
    """Open the guards' door first (their lease runs), then learn all from the journal."""
    open_control(lead)
    lead.shared = lead.world.share(lead.run_dir, lead.local / "spool")
    meta = lead.patiently(lambda: json.loads((lead.run_dir / "run.json").read_text()))
    lead.plan = plans.make(meta["config"], meta["run_id"])
    lead.state = fold(journal.merge_raw(lead.patiently(lambda: journal.read_raw(lead.run_dir))).events)
    lead.claim_number = int(lead.patiently(lambda: journal.last_claim(lead.run_dir)))
    lead.gen = lead.claim("lead", own_gen=True)
    lead.writer = journal.Writer(lead.shared, lead.gen, lead.job.host, lead.world.now, lead.world.pid)
    lead.successor = Successor(lead.plan, lead.job, lead.run_dir,
                               lead.patiently(lambda: runfolder.read_env(lead.run_dir)), lead.world.command)
    lead.fencer = Fencer(lead.plan, lead.job, lead.server, GUARD.read_text(), lead.world.command)
    watch.read_requests(lead)
    reborn = lead.state.job is not None and lead.state.job.id == lead.job.id
    if reborn and lead.state.job and lead.state.job.started_t is not None:
        lead.record(lead.writer.event("took_over", job=lead.job.id))
    else:
        meet_the_job_before(lead)
        lead.record(lead.writer.event("job_started", job=lead.job.id, nodes=list(lead.job.nodes),
                                      batch_host=lead.job.host))
    settle_intents(lead)
    adopt(lead)
    if not lead.job.is_local:
        lead.begin("addresses", ask_addresses(lead))
    if not lead.state.attempts:   # what was there before the first attempt is no progress of this run
        lead.record(*checkpoint_events(lead, None))
    if lead.state.ended is None and lead.state.successor is None and not lead.job.is_local:
        lead.begin("successor", endings.queue_successor(lead))


def open_control(lead: Leader) -> None:
    """The same port and token as the leader before, so that its guards find this one."""
    file = lead.local / "control.json"
    try:
        old = json.loads(file.read_text())
    except (OSError, ValueError):
        old = {"token": lead.world.secret(), "port": 0}
    lead.token = old["token"]
    lead.server = lead.world.serve(lead.token, old["port"])
    lead.server.on_report = lambda guard: watch.on_report(lead, guard)
    temporary = file.with_suffix(".tmp")
    temporary.touch(0o600)
    temporary.write_text(json.dumps({"token": lead.token, "port": lead.server.port}))
    temporary.replace(file)


def meet_the_job_before(lead: Leader) -> None:
    """What the last job of the run left: a person's scancel is final, an attempt without an end gets one."""
    before = lead.state.job
    if before is None or before.id == lead.job.id or before.started_t is None:
        return
    if watch.ending_of(lead, before.id) == "cancelled":
        lead.ending = "cancelled"
    attempt = lead.state.attempt
    if attempt is not None and attempt.ended is None:
        while not lead.shared.put(*lead.record_of(attempt.number, "ended")):
            lead.wait(1.0)
        until = lead.now_s + lead.plan.lease_s + Fencer.MARGIN_S
        while lead.now_s < until and not lead.signals:   # its nodes may be silent: their leases have run out then
            lead.wait(min(1.0, until - lead.now_s))
        lead.record(lead.writer.event("attempt_ended", attempt=attempt.number, how="interrupted",
                                      why=f"job {before.id} ended under it"),
                    lead.writer.event("fenced", attempt=attempt.number))
    lead.find_resume()
    lead.record(*checkpoint_events(lead, None))


def settle_intents(lead: Leader) -> None:
    """Announced acts without an outcome: see whether they happened."""
    for intent in lead.state.intents:
        happened = None
        if intent.act == "launch":
            number = int(intent.data["attempt"])
            happened = lead.world.adopt(lead.local, number) is not None
        lead.record(lead.writer.event("outcome", claim=intent.claim, act=intent.act, ok=happened,
                                      note="settled by the next supervisor"))


def adopt(lead: Leader) -> None:
    """Take over a living attempt of this job, also one that was started and not yet written down."""
    last = lead.state.attempt
    number = last.number if last else 0
    unwritten = lead.world.adopt(lead.local, number + 1)
    if unwritten is not None:
        facts = unwritten.facts
        lead.record(lead.writer.event("attempt_started", **{**facts, "note": "written down by the next supervisor"}))
        last, number = lead.state.attempt, number + 1
    if last is None or last.ended is not None or last.job != lead.job.id:
        if last is None or last.ended is not None:
            lead.find_resume()
        return
    process = lead.world.adopt(lead.local, number)
    lead.process = process
    lead.live = decide.Live(number, last.nodes, tasks=lead.plan.tasks,
                            srun_code=None if process is not None else 255)
    lead.server.expect(number)

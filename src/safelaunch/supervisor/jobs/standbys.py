"""The leader's side of its standby: where it runs, that there is one, and what is lost where there cannot be one."""

from __future__ import annotations

from safelaunch.base.timing import CALM_AFTER_S, SUSPICION_S
from safelaunch.decide.jobs import standby
from safelaunch.decide.jobs.standby import LOST_S, StandbyFacts, StandbyStep
from safelaunch.guard.io.job import Allocation, hand_to_standby
from safelaunch.slurm.io.slurm import Result
from safelaunch.supervisor.leader import Leader
from safelaunch.supervisor.state.attempt import RunningAttempt
from safelaunch.supervisor.state.clock import Clock
from safelaunch.supervisor.state.endpoint import GuardEndpoint, had_eligible
from safelaunch.supervisor.state.folder import FolderState
from safelaunch.supervisor.state.helpers import Helpers
from safelaunch.supervisor.state.journal import LeaderJournal
from safelaunch.supervisor.state.nodes import Nodes
from safelaunch.supervisor.state.ports import FolderPort, Here, Say
from safelaunch.supervisor.state.reach import Reach
from safelaunch.supervisor.state.standbys import Standbys

START_S = 90.0       # a library copied from a slow folder, an interpreter from a slower one
RETRY_S = 60.0
FOREVER_S = 1e9


def keep_standby(lead: Leader) -> None:
    """See that there is a standby on another node, once an attempt runs; look once a second."""
    if not lead.wants_standby or lead.course.final is not None:
        return
    if lead.folder.gone is not None:   # in which nobody can claim to lead
        lead.standbys.doubt(False)
        return
    helpers = lead.helpers
    for node, quiet_s in _silences_s(lead.job, lead.clock, lead.guard_endpoint).items():
        if quiet_s >= CALM_AFTER_S:
            lead.server.forget_standby(node)   # before the heartbeat says so: what it hears from then on is a greeting
    lead.standbys.doubt(had_eligible(lead.here, lead.guard_endpoint) and (
        _may_be_watched_unheard(lead.job, lead.clock, lead.journal, lead.guard_endpoint, lead.standbys)
        or _check_striking_off(lead.job, lead.clock, lead.folder, lead.guard_endpoint, lead.standbys)))
    if not lead.standbys.is_contested:
        _confirm(lead.here, lead.clock, lead.guard_endpoint, lead.standbys)
    if lead.running.live is None:
        return
    heard = max((guard for guard in lead.server.standbys.values()
                 if guard.connection is not None and guard.node != lead.job.host and guard.node not in lead.reach.lost),
                # Two answer: the earlier one stays; a silent one's connection stays open.
                key=lambda guard: (guard.node == lead.standbys.node and lead.now_s - guard.heard_s < LOST_S,
                                   guard.heard_s), default=None)
    silent_s = None if heard is None else lead.now_s - heard.heard_s
    result = None
    if (silent_s is None or silent_s >= LOST_S) and lead.standbys.process is not None:
        result = lead.standbys.process.poll()
        helpers.note_result(result)
        if lead.folder.is_frozen:
            lead.standbys.wait_until(lead.now_s + START_S)
    has_answered = heard is not None and heard.has_answered
    step = standby.judge(_facts(lead.clock, lead.files, lead.nodes, lead.standbys, silent_s, has_answered=has_answered,
                                has_ended=result is not None))
    if step is StandbyStep.KEEP and heard is not None:
        _keep(lead.journal, lead.standbys, heard.node, heard.heard_s)
    if step is StandbyStep.LOST:
        late = f"it has been silent for {LOST_S:.0f} s" if lead.standbys.node else "it did not come up"
        _note_lost(lead.clock, lead.journal, lead.standbys, lead.say, _last_words(result) if result else late)
        step = standby.judge(_facts(lead.clock, lead.files, lead.nodes, lead.standbys, silent_s))
    if step is StandbyStep.START:
        chosen = _choose(lead.job, lead.journal, lead.reach, lead.running, lead.standbys)
        if chosen is not None and lead.check_folder():
            _start(helpers, lead.standbys, lead.own_address(), chosen, lead.now_s + START_S)
        elif chosen is None and lead.standbys.note_no_node(lead.now_s + RETRY_S):
            lead.say(f"no other node is left for a standby: should {lead.job.host} die, this job is lost, and the run "
                     f"goes on in its next one")


def _facts(
    clock: Clock, files: FolderPort, nodes: Nodes, standbys: Standbys, silent_s: float | None, *,
    has_answered: bool = False, has_ended: bool = False
) -> StandbyFacts:
    mine = standbys
    return StandbyFacts(
        silent_s, has_answered=has_answered, is_started=mine.process is not None, has_ended=has_ended,
        is_known=mine.node is not None, is_late=clock.now_s >= mine.until_s, can_run=nodes.no_overlap is None,
        may_start=clock.now_s >= mine.next_s and not files.state.is_frozen)


def _may_be_watched_unheard(
    job: Allocation, clock: Clock, journal: LeaderJournal, guards: GuardEndpoint, standbys: Standbys
) -> bool:
    """A standby may read the heartbeat without hearing this leader: then it gets a heartbeat each second.

    It was heard before, or an earlier leader here had it. One that is still starting may not take over
    (decide.jobs.takeover). After CALM_AFTER_S it has read in the heartbeat that the next ones come less often, and
    waits longer.
    """
    silences_s = _silences_s(job, clock, guards)
    if any(SUSPICION_S < silent_s < CALM_AFTER_S for silent_s in silences_s.values()):
        return True
    expected = standbys.node or journal.state.standby
    return expected is not None and silences_s.get(expected, CALM_AFTER_S) > SUSPICION_S


def _silences_s(job: Allocation, clock: Clock, guards: GuardEndpoint) -> dict[str, float]:
    return {guard.node: clock.now_s - guard.heard_s for guard in guards.server.standbys.values()
            if guard.node != job.host}


def eligible_standbys(job: Allocation, clock: Clock, guards: GuardEndpoint) -> list[str]:
    """The eligible standbys: those that this leader, or one before it on this host, has let in and still hears."""
    return sorted(node for node, silent_s in _silences_s(job, clock, guards).items() if silent_s < CALM_AFTER_S)


def _check_striking_off(
    job: Allocation, clock: Clock, folder: FolderState, guards: GuardEndpoint, standbys: Standbys
) -> bool:
    """Whether a standby that is no longer listed may not have read that yet, or has acted before, unseen so far."""
    return standbys.heartbeat.check_striking_off(
        eligible_standbys(job, clock, guards), folder.shared.is_durable, clock.now_s, standbys.confirmed_s)


def _confirm(here: Here, clock: Clock, guards: GuardEndpoint, standbys: Standbys) -> None:
    """Nobody else leads: no standby was ever eligible, or all that were say that they still stand by.

    So a folder that is frozen on all nodes costs no training, however long, while the standby's connection stands.
    """
    if not had_eligible(here, guards):
        standbys.confirm(clock.now_s)
    else:
        sure_s = (guard.sure_s for guard in guards.server.standbys.values()
                  if guard.node != here.job.host and clock.now_s - guard.heard_s < CALM_AFTER_S)
        confirmed_s = standbys.confirmed_s
        standbys.confirm(max(confirmed_s, min(sure_s, default=confirmed_s)))


def _keep(journal: LeaderJournal, standbys: Standbys, node: str, heard_s: float) -> None:
    is_new = standbys.node != node or journal.state.standby != node
    standbys.keep(node, heard_s + LOST_S)
    if is_new:
        journal.record(journal.event("standby_started", node=node))


def _last_words(result: Result) -> str:
    said = "; ".join(filter(None, map(str.strip, (result.stderr or result.stdout)[-200:].splitlines())))
    return f"it ended: {said}" if said else "it ended"


def _note_lost(clock: Clock, journal: LeaderJournal, standbys: Standbys, say: Say, why: str) -> None:
    node = standbys.note_lost(clock.now_s + (0.0 if journal.state.standby else RETRY_S))
    if journal.state.standby is not None:
        journal.record(journal.event("standby_lost", node=node, why=why))
    say(f"the standby on {node} is lost: {why}")


def _start(helpers: Helpers, standbys: Standbys, own_address: str, node: str, until_s: float) -> None:
    here, guards = helpers.here, helpers.guards
    env = hand_to_standby(here.job, (own_address, guards.server.port), guards.token, helpers.nodes.addresses)
    script = str(here.run_dir / "job.sbatch")
    # %N makes slurmstepd itself write the file, on the standby's node: its word on a cancel outlives this host.
    output = f"--output={str(here.run_dir).replace('%', '%%')}/slurm-%j.standby-%N.out"
    argv = guards.fencer.helper(node, ["bash", script, "standby"])
    standbys.start(here.world.command([argv[0], output, *argv[1:]], env, FOREVER_S), node, until_s)


def _choose(
    job: Allocation, journal: LeaderJournal, reach: Reach, running: RunningAttempt, standbys: Standbys
) -> str | None:
    bad = {job.host, *reach.lost, *journal.state.excluded}
    node = standby.choose(job.nodes, bad, standbys.tried, running.live.nodes if running.live else ())
    if node in standbys.tried:
        standbys.try_all_again()
    return node

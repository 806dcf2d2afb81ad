"""The leader's side of its standby: where it runs, that there is one, and what is lost where there cannot be one."""

from __future__ import annotations

from safelaunch.adapters.job import hand_to_standby
from safelaunch.adapters.slurm import Result
from safelaunch.core.decide.takeover import CALM_AFTER_S, SETTLE_S, SUSPICION_S
from safelaunch.supervisor import overlap
from safelaunch.supervisor.leader import Leader

START_S = 90.0       # a library copied from a slow folder, an interpreter from a slower one
LOST_S = 30.0        # a standby that is silent for so long gets a replacement
RETRY_S = 60.0
FOREVER_S = 1e9


def keep_standby(lead: Leader) -> None:
    """See that there is a standby on another node, once an attempt runs; look once a second."""
    if not lead.wants_standby or lead.final is not None:
        return
    for node, quiet_s in _silences_s(lead).items():
        if quiet_s >= CALM_AFTER_S:
            lead.server.forget_standby(node)   # before the pulse says so: what he hears from then on is a new greeting
    lead.contested = lead.was_watched and (_may_be_watched_unheard(lead) or _is_striking_off(lead))
    if not lead.contested:
        _confirm(lead)
    if lead.live is None:
        return
    heard = max((guard for guard in lead.server.standbys.values()
                 if guard.connection is not None and guard.node != lead.job.host and guard.node not in lead.lost),
                # Of two that answer the one of before; a silent one's connection stays open.
                key=lambda guard: (guard.node == lead.standby_node and lead.now_s - guard.heard_s < LOST_S,
                                   guard.heard_s), default=None)
    silent_s = None if heard is None else lead.now_s - heard.heard_s
    if heard is not None and silent_s is not None and silent_s < LOST_S:
        if heard.has_answered:
            _is_kept(lead, heard.node, heard.heard_s)
        return
    if lead.standby_process is not None:
        result = lead.standby_process.poll()
        overlap.note_result(lead, result)
        if lead.frozen:
            lead.standby_until_s = lead.now_s + START_S   # its script lies in the run folder
        if result is None and lead.now_s < lead.standby_until_s:
            return
        late = f"it has been silent for {LOST_S:.0f} s" if lead.standby_node else "it did not come up"
        _is_lost(lead, _last_words(result) if result else late)
    elif lead.standby_node is not None and lead.now_s > lead.standby_until_s:
        _is_lost(lead, f"it has been silent for {LOST_S:.0f} s")
    if lead.no_overlap is not None:
        return
    if lead.standby_process is None and lead.now_s >= lead.standby_next_s and not lead.frozen:
        _start(lead)


def _may_be_watched_unheard(lead: Leader) -> bool:
    """Somebody may watch who does not hear this leader, and judges by the pulse: then it is shown each second.

    A standby that was heard, also one whose node counts as lost; one that an earlier leader here had. One that is only
    on its way may not take over (core.decide.takeover). After CALM_AFTER_S it has read in the pulse that it comes
    seldom, and has more patience.
    """
    silences_s = _silences_s(lead)
    if any(SUSPICION_S < silent_s < CALM_AFTER_S for silent_s in silences_s.values()):
        return True
    expected = lead.standby_node or lead.state.standby
    return expected is not None and silences_s.get(expected, CALM_AFTER_S) > SUSPICION_S


def _silences_s(lead: Leader) -> dict[str, float]:
    return {guard.node: lead.now_s - guard.heard_s for guard in lead.server.standbys.values()
            if guard.node != lead.job.host}


def watchers_of(lead: Leader) -> list[str]:
    """Who may take over: those whom this leader, or one before it on this host, has let in and hears now and then."""
    return sorted(node for node, silent_s in _silences_s(lead).items() if silent_s < CALM_AFTER_S)


def strike_off(lead: Leader, watchers: list[str], ticket: int) -> None:
    """Note that the pulse with this ticket lists these watchers, and whom no more."""
    if not set(watchers).issuperset(lead.watchers):
        lead.struck_off, lead.struck_s = ticket, None
    lead.watchers = tuple(watchers)


def _is_striking_off(lead: Leader) -> bool:
    """Whether somebody who is listed no more may not have read that yet, or has acted before, unseen so far."""
    if not set(watchers_of(lead)).issuperset(lead.watchers):
        return True   # the next pulse is due at once
    if lead.struck_off is None:
        return False
    if lead.struck_s is None and lead.shared.is_durable(lead.struck_off):
        lead.struck_s = lead.now_s
    if lead.struck_s is None or lead.confirmed_s < lead.struck_s + SETTLE_S:
        return True
    lead.struck_off = None
    return False


def _confirm(lead: Leader) -> None:
    """Nobody else leads: nobody has ever been let in who might; or all who have been say that they still stand by.

    So a folder that is frozen on all nodes costs no training, however long, as long as the standby's line lives.
    """
    if not lead.was_watched:
        lead.confirmed_s = lead.now_s
    else:
        sure_s = (guard.sure_s for guard in lead.server.standbys.values()
                  if guard.node != lead.job.host and lead.now_s - guard.heard_s < CALM_AFTER_S)
        lead.confirmed_s = max(lead.confirmed_s, min(sure_s, default=lead.confirmed_s))


def _is_kept(lead: Leader, node: str, heard_s: float) -> None:
    lead.standby_until_s = heard_s + LOST_S
    if lead.standby_node != node or lead.state.standby != node:
        lead.standby_node = node
        lead.record(lead.writer.event("standby_started", node=node))


def _last_words(result: Result) -> str:
    said = "; ".join(filter(None, map(str.strip, (result.stderr or result.stdout)[-200:].splitlines())))
    return f"it ended: {said}" if said else "it ended"


def _is_lost(lead: Leader, why: str) -> None:
    node = lead.standby_node or lead.standby_asked
    lead.standby_process = lead.standby_node = None
    lead.standby_next_s = lead.now_s + (0.0 if lead.state.standby else RETRY_S)
    if lead.state.standby is not None:
        lead.record(lead.writer.event("standby_lost", node=node, why=why))
    lead.say(f"the standby on {node} is lost: {why}")
    lead.standby_tried.add(str(node))


def _start(lead: Leader) -> None:
    node = _choose(lead)
    if node is None:
        if not lead.said_no_standby:
            lead.said_no_standby = True
            lead.say(f"no other node is left for a standby: should {lead.job.host} die, this job is lost, and the run "
                     f"goes on in its next one")
        lead.standby_next_s = lead.now_s + RETRY_S
        return
    if not lead.is_sure_of_folder():
        return
    env = hand_to_standby(lead.job, (lead.own_address(), lead.server.port), lead.token, lead.addresses)
    script = str(lead.run_dir / "job.sbatch")
    # %N makes slurmstepd itself write the file, on the standby's node: its word on a cancel outlives this host.
    output = f"--output={str(lead.run_dir).replace('%', '%%')}/slurm-%j.standby-%N.out"
    argv = lead.fencer.helper(node, ["bash", script, "standby"])
    lead.standby_process = lead.world.command([argv[0], output, *argv[1:]], env, FOREVER_S)
    lead.standby_asked, lead.standby_until_s = node, lead.now_s + START_S


def _choose(lead: Leader) -> str | None:
    """A node of the allocation that is not this one: a spare first, else the last; another one after a failure."""
    used = set(lead.live.nodes) if lead.live else set()
    good = [node for node in lead.job.nodes
            if node != lead.job.host and node not in lead.lost and node not in lead.state.excluded]
    fresh = [node for node in good if node not in lead.standby_tried]
    if good and not fresh:
        lead.standby_tried.clear()
        fresh = good
    return next((node for node in fresh if node not in used), fresh[-1] if fresh else None)

"""One node's report on a hang: what every rank of a job does here, as one JSON line on stdout. Always exits with 0.

Travels as text in the environment of its helper step, with the modules beside it (slurm.io.noderound), so that no file
of a frozen filesystem is needed. What may hang is left to disposable children; after the deadline it reports what it
has.
Both laws come from an incident, a dump of eight nodes. One py-spy was refused (EPERM, a rank asleep in D state). That
ended the step, and with it the dumps of the seven healthy nodes. Standard library, Python 3.9.

The line: {"v": 1, "node", "host", "t", "took_s", "ranks": […], "frames": [text], "stacks": [[index of frame]],
"mounts", "gpus", "ras", "left": who should not be here (node.leftovers), "cores": null or node.cores' word,
"software": null or node.ranksoftware's, "tools", "notes"}; a rank's "samples" hold threads as [name, tid, active, gil,
index of stack].
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from safelaunch.node import children, cores, devices, evidence, leftovers, proctable, ranksoftware, spy
from safelaunch.node.host import short_host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Optional

AT_ONCE = 8              # dumps at a time: the training's own cores are not for us alone
STALL_S = 0.5            # of one process's files in /proc
REPORT_S = 0.2           # kept for the report itself
MOST_BYTES = 900_000     # of the report; slurm.io.slurm reads a megabyte
MOST_RANKS = 512


class Options:
    """What is asked: `job` and `mark` say whose processes, the rest how closely to look."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.job = str(fields["job"])
        self.node = str(fields.get("node") or os.environ.get("SLURMD_NODENAME", ""))
        self.mark = str(fields.get("mark", ""))
        self.samples = int(fields.get("samples", 2))   # 0 = no rank is looked at
        self.gap_s = float(fields.get("gap_s", 0.2))
        self.native = bool(fields.get("native", False))
        self.gpus = bool(fields.get("gpus", True))
        self.deadline_s = float(fields.get("deadline_s", 8.0))
        self.keep_tool = bool(fields.get("keep_tool", False))
        self.software = bool(fields.get("software", False))
        self.claim = leftovers.Claim(str(fields.get("run", "")), int(fields.get("attempt", 0)), self.node)
        self.end_left = bool(fields.get("end_left", False))
        self.cores = fields.get("cores")   # (folders, since when) to look for core files, or None


class Table:
    """Values by number: the same frame stands in hundreds of stacks."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._known: dict[Any, int] = {}

    def add(self, value: Any) -> int:
        """The value's number."""
        if value not in self._known:
            self._known[value] = len(self.rows)
            self.rows.append(value)
        return self._known[value]


class NodeSample:
    """One look at a node."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.start_s = time.monotonic()
        self.until_s = self.start_s + options.deadline_s - REPORT_S
        self.notes: list[str] = []
        self.frames, self.stacks = Table(), Table()
        self.ranks: list[proctable.RankProcess] = []
        self.rows: dict[int, dict[str, Any]] = {}      # rank's pid → its part of the report
        self.tools = spy.Tools(None, None, [])
        self.others: dict[Any, children.Outcome] = {}
        self.members = 0
        self.left: list[dict[str, Any]] = []
        self.found_cores: Optional[dict[str, Any]] = None

    def run(self) -> None:
        """Everything, in order of worth: who is there, what the kernel says, then the stacks."""
        options = self.options
        table = proctable.read_table()
        want = proctable.Want(options.job, options.node, options.mark, os.environ.get("SLURM_STEP_ID", ""), os.getpid())
        members, hanging = proctable.find_members(table, want, self.until_s)
        self.members = len(members)
        self.ranks = proctable.find_ranks(table, members)[:MOST_RANKS]
        self._note_hanging(hanging)
        if options.samples:
            self._sample_ranks()
        elif options.gpus:
            self.others.update(children.run_all(devices.gpu_tasks(), 2, self.until_s))
        self._read_others()
        self._find_left(table, members)
        if options.cores is not None:
            folders, since_t = options.cores
            pystack = spy.find_pystack(min(self.until_s, time.monotonic() + 2 * spy.FIND_S))
            self.found_cores = cores.look(folders, since_t, self.until_s, pystack)

    def _sample_ranks(self) -> None:
        options = self.options
        self._sample_kernel()
        self._find_tools()
        refused: set[int] = set()
        for number in range(options.samples):
            if number and self._left_s() < options.gap_s + 0.5:
                self.notes.append("no time was left for sample %d" % (number + 1))
                break
            if number:
                time.sleep(options.gap_s)
            self._sample(refused, self._other_tasks() if number == 0 else [])

    def _find_left(self, table: dict[int, proctable.Process], members: Mapping[int, proctable.Process]) -> None:
        gpus = self._read_gpus() or {"gpus": []}
        self.left = leftovers.find(table, members, self.options.claim, gpus["gpus"], self.until_s)
        if self.options.end_left:
            leftovers.end_ours(self.left, table, self.options.claim, self.until_s)

    def _read_gpus(self) -> Optional[dict[str, Any]]:
        return devices.read_gpus(self.others["gpus"], self.others["apps"]) if "gpus" in self.others else None

    def _left_s(self) -> float:
        return self.until_s - time.monotonic()

    def _sample_kernel(self) -> None:
        pids = [process.pid for rank in self.ranks for process in (rank.process, *rank.below[:32])]
        found, stuck = children.walk(pids, evidence.look, STALL_S, self.until_s)
        facts = {pids[index]: said for index, said in found.items()}
        for rank in self.ranks:
            self.rows[rank.process.pid] = _row(rank, facts)
        self._note_hanging([pids[index] for index in stuck])

    def _note_hanging(self, pids: list[int]) -> None:
        if pids:
            self.notes.append("/proc files of pid %s gave no answer in time" % ", ".join(map(str, pids[:8])))

    def _find_tools(self) -> None:
        envs = {id(rank.env): rank.env for rank in self.ranks[:1]}
        self.tools = spy.find_tools(envs.values(), [rank.process.words for rank in self.ranks[:1]],
                                    min(self.until_s, time.monotonic() + 4 * spy.FIND_S))

    def _other_tasks(self) -> list[children.Task]:
        """Looks that take the time of the first sample."""
        tasks = devices.gpu_tasks() if self.options.gpus else []
        mounts, bad, sockets = {}, set(), []
        for rank in self.ranks:
            row = self.rows[rank.process.pid]
            bad |= {one["mount"] for one in (row, *row["blocked"]) if one["state"] == "D"}
            sockets += row.pop("sockets")
        if self.ranks:
            mounts = evidence.real_mounts(self.ranks[0].process.pid)
        tasks += devices.mount_tasks(mounts, bad)
        ras = devices.ras_task(sockets)
        tasks += [ras] if ras is not None else []
        for rank in self.ranks:
            if rank.number is not None and any(key.startswith("TORCH_") for key in rank.env):
                tasks.append(devices.flight_task(("flight", rank.process.pid), rank.env, rank.number,
                                                 devices.started_t(rank.process.started)))
        return tasks

    def _sample(self, refused: set[int], others: list[children.Task]) -> None:
        """One stack of every rank, two tries where the first fails."""
        for rank in self.ranks:   # also of those whose stacks are refused: what the kernel says is all there is then
            self._note_state(rank.process.pid, rank.process)
        processes = {rank.process.pid: rank.process for rank in self.ranks if rank.process.pid not in refused}
        asleep = [pid for pid in processes if self._has_slept(pid)]
        tasks = [task for pid, process in processes.items() if pid not in asleep
                 for task in [spy.dump_task(pid, process.state, self.tools, self.options.native)] if task is not None]
        outcomes = children.run_all(tasks + others, AT_ONCE + len(others), self.until_s)
        if not self.options.native:   # those pause, and begin in the C library
            spy.mend_torn(tasks, outcomes, AT_ONCE, self.until_s)
        again = [task for pid, outcome in outcomes.items() if pid in processes and outcome.code != 0
                 for task in [spy.second_task(pid, processes[pid].state, self.tools, outcome)] if task is not None]
        outcomes.update((pid, outcome) for pid, outcome in children.run_all(again, AT_ONCE, self.until_s).items()
                        if outcome.code == 0)
        self.others.update((name, outcome) for name, outcome in outcomes.items() if name not in processes)
        for pid, process in processes.items():
            if pid in asleep:
                self.rows[pid]["samples"].append(self.rows[pid]["samples"][-1])
                continue
            outcome = outcomes.get(pid)
            threads = spy.read_dump(outcome.text) if outcome is not None and outcome.code == 0 else []
            if any(thread["frames"] for thread in threads):
                self.rows[pid]["samples"].append([self._intern(thread) for thread in threads])
                continue
            if outcome is not None and spy.was_overtaken(outcome):
                continue   # the next sample may meet it at rest
            refused.add(pid)
            if not self.rows[pid]["samples"]:
                self.rows[pid]["why"], self.rows[pid]["hint"] = spy.why_not(process, self.tools, outcome)

    def _note_state(self, pid: int, process: proctable.Process) -> None:
        row = self.rows[pid]
        with contextlib.suppress(OSError, ValueError, IndexError):
            now = proctable.read_stat("/proc/%d/stat" % pid)
            if now.started == process.started:
                process.state = now.state
                row["cpu"].append([round(time.monotonic(), 3), now.ticks / os.sysconf("SC_CLK_TCK")])
                row["states"] += now.state
                row["switches"].append(evidence.count_switches(pid))
                row["life"].append(evidence.count_life(pid, [one["pid"] for one in row["below"][:32]]))
                return
        process.state = "X"
        row["states"] += "X"

    def _has_slept(self, pid: int) -> bool:
        """Whether its stack is still the last one, without a look: its main thread has not run since. That saves half
        of the time for 32 ranks on two cores. In a backward pass other threads run for the main one.
        """
        row = self.rows[pid]
        if not row["samples"] or row["states"][-1] not in "SDTt" or row["states"][-2] not in "SDTt":
            return False
        main = next((thread for thread in row["samples"][-1] if thread[1] == pid), None)
        frames = self.stacks.rows[main[4]][:4] if main is not None else ()
        waits_for_others = any("_engine_run_backward" in self.frames.rows[frame] for frame in frames)
        return bool(frames) and not waits_for_others and row["switches"][-1] == row["switches"][-2]

    def _intern(self, thread: dict[str, Any]) -> list[Any]:
        frames = tuple(self.frames.add(frame) for frame in thread["frames"])
        return [thread["name"], thread["tid"], int(thread["active"]), int(thread["gil"]), self.stacks.add(frames)]

    def _read_others(self) -> None:
        for rank in self.ranks:
            outcome = self.others.get(("flight", rank.process.pid))
            if outcome is not None and outcome.code == 0 and outcome.out:
                self.rows[rank.process.pid]["flight"] = json.loads(outcome.text)
        asked = ranksoftware.ask_task(self.ranks) if self.options.software else None
        if asked is not None:
            self.others.update(children.run_all([asked], 1, self.until_s))
        if self.options.keep_tool:
            envs, words = [rank.env for rank in self.ranks[:1]], [rank.process.words for rank in self.ranks[:1]]
            task = children.Task("keep", lambda: spy.keep_local_copy(envs, words).encode(), 5.0)
            kept = children.run_all([task], 1, self.until_s)["keep"]
            self.tools.py_spy = kept.text or None
            self.notes += ["no copy of py-spy could be kept here: %s" % kept.said] if kept.said else []

    def report(self) -> dict[str, Any]:
        """What is known by now, whatever is still missing."""
        mounts = {name[1]: devices.read_mount(outcome) for name, outcome in self.others.items()
                  if isinstance(name, tuple) and name[0] == "mount"}
        ras = self.others.get("ras")
        rows = [self.rows[rank.process.pid] for rank in self.ranks if rank.process.pid in self.rows]
        for row in rows:
            row.pop("sockets", None)
        return {
            "v": 1, "node": self.options.node, "host": short_host(), "t": time.time(),
            "took_s": round(time.monotonic() - self.start_s, 3), "processes": self.members, "ranks": rows,
            "frames": self.frames.rows, "stacks": self.stacks.rows, "mounts": mounts,
            "gpus": self._read_gpus(),
            "ras": ras.text[:20000] if ras is not None and ras.code == 0 else "",
            "left": self.left, "cores": self.found_cores, "software": ranksoftware.read_answer(self.others),
            "tools": {"py_spy": self.tools.py_spy, "pystack": self.tools.pystack, "stuck": self.tools.stuck},
            "notes": self.notes}


def _row(rank: proctable.RankProcess, facts: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """A rank's part of the report, before any stack is known."""
    process = rank.process
    nothing = {"state": process.state, "wchan": "", "call": "", "path": "", "mount": "", "fs": "", "threads": 0,
               "blocked": [], "files": [], "mounts": {}, "sockets": [], "rss_mb": None, "kernel": [], "cgroup": []}
    world = rank.env.get("WORLD_SIZE") or rank.env.get("SLURM_NTASKS") or ""
    below = [{"pid": one.pid, "name": one.comm, "cmd": " ".join(one.words[:4])[:120],
              **{key: facts.get(one.pid, nothing)[key] for key in ("state", "wchan", "call", "path", "mount")}}
             for one in rank.below]
    return {**nothing, **facts.get(process.pid, {}), "rank": rank.number, "local": rank.env.get("LOCAL_RANK", ""),
            "world": int(world) if world.isdigit() else None, "step": rank.step, "pid": process.pid,
            "name": process.comm, "cmd": " ".join(process.words)[:300], "parallel": process.parallel,
            "devices": rank.env.get("CUDA_VISIBLE_DEVICES", ""), "below": below, "samples": [], "cpu": [], "states": "",
            "switches": [], "life": [], "why": process.why, "hint": "", "flight": None}


def fitted(report: dict[str, Any]) -> str:
    """The report as a line that fits; of one that does not, threads besides the main ones go first."""
    line = json.dumps(report, separators=(",", ":"))
    if len(line) <= MOST_BYTES:
        return line
    report["notes"].append("too long: threads besides the main ones were left out")
    used, stacks = Table(), report["stacks"]
    for row in report["ranks"]:
        row["files"], row["below"] = row["files"][:4], row["below"][:4]
        for sample in row["samples"]:
            sample[:] = [thread for thread in sample if thread[1] == row["pid"] or thread[0] == "MainThread"][:1]
            for thread in sample:
                thread[4] = used.add(tuple(stacks[thread[4]]))
    report["stacks"] = used.rows
    return json.dumps(report, separators=(",", ":"))


def main(text: str) -> int:
    """Print the report that these options, a JSON object, ask for; 0, whatever happened."""
    look: Optional[NodeSample] = None
    report: dict[str, Any] = {"v": 1, "node": os.environ.get("SLURMD_NODENAME", ""), "ranks": [], "notes": []}
    try:
        options = Options(json.loads(text))
        look = NodeSample(options)
        look.run()
    except Exception as error:  # noqa: BLE001 - a helper that fails takes its node's evidence with it
        report["notes"].append("the collector failed: %r" % (error,))
    with contextlib.suppress(Exception):
        if look is not None:
            failed = report["notes"]
            report = look.report()
            report["notes"] += failed
    sys.stdout.write(fitted(report) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)   # not the interpreter's own end: it would wait for what is left

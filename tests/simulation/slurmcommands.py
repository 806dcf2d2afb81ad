"""The fake Slurm's commands: the argument lists that the project builds, read and answered in text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from safelaunch.decide.ends.vanished import ELSEWHERE_GONE, ELSEWHERE_THERE
from safelaunch.slurm import nodefold, nodeset, slurmtext
from tests.simulation.batch import Step
from tests.simulation.command import SimCommand
from tests.simulation.hosts import Host
from tests.simulation.scenario import SITES
from tests.simulation.slurm import ENDED, MESSAGE_TIMEOUT_S, Controller, Job
from tests.simulation.training import KILL_WAIT_S

BUSY = "srun: error: Unable to create step for job {}: Requested nodes are busy"
NOT_FOUND = 127
LATE_START_S = 1320.0   # what --test-only adds where another job waits (measured)
NO_DEPENDENCIES = "{0}: error: job dependencies are not allowed here\n{0}: error: Unspecified error"
NO_SUCH_NODE = "Invalid node name specified"
TIMED_OUT = "{}: error: Socket timed out on send/recv operation"
NO_CONTACT = "{}: error: Unable to contact slurm controller (connect failure)"


class Slurm(Controller):
    """slurmctld with its clients."""

    def start(self, command: SimCommand, host: Host) -> None:
        """Take a command from a process on `host`."""
        verb = command.argv[0]
        if verb == "srun":
            self._helper(command, host)
            return
        if host in self.sim.nodes and verb in SITES[self.sim.scenario.site]:
            self.sim.clock.after(0.002, lambda: command.end(NOT_FOUND, "", f"{verb}: No such file or directory"))
            return
        answers = self.sim.net.is_up(host, self.sim.controller) and self.sim.net.is_up(self.sim.controller, host)
        self.calls.append((self.sim.clock.t, command.argv))
        command.owner.asking.append(command)
        self.callers.append(command.owner if answers and not self.is_gone else None)
        number = len(self.calls)
        manner = self.manners.pop(0) if self.manners else ""
        shows_ended = verb == "squeue" and "--states=all" in command.argv
        if shows_ended and answers and not manner and not self.is_gone:
            asked = next((word.removeprefix("--jobs=") for word in command.argv if word.startswith("--jobs=")), "")
            self.clear_looks.append((self.sim.clock.t, asked))
        self.sim.trace(host.name, f"call {number}: {' '.join(command.argv)}{f' [{manner}]' if manner else ''}")
        rng, clock = self.sim.rng, self.sim.clock
        if not answers or self.is_gone:
            clock.after(MESSAGE_TIMEOUT_S, lambda: command.end(1, "", NO_CONTACT.format(verb)))
        elif self.is_hung or manner == "times_out_done":
            if self.is_hung:
                self._waiting.append(command)   # it waits in the socket, and is worked off
            else:
                clock.after(rng.uniform(0.0, 15.0), partial(self._execute, command))
            clock.after(MESSAGE_TIMEOUT_S, lambda: command.end(1, "", TIMED_OUT.format(verb)))
        elif manner == "times_out_undone":
            clock.after(MESSAGE_TIMEOUT_S, lambda: command.end(1, "", TIMED_OUT.format(verb)))
        else:
            clock.after(rng.uniform(0.01, 0.3), lambda: self._answer(command, manner))

    def _answer(self, command: SimCommand, manner: str) -> None:
        if not self.answers:
            self.sim.clock.after(MESSAGE_TIMEOUT_S, lambda: command.end(1, "", TIMED_OUT.format(command.argv[0])))
            return
        if manner == "refused":
            command.end(1, "", f"{command.argv[0]}: error: Access/permission denied")
            return
        code, out, err = self._execute(command)
        delay_s = 0.005
        if manner == "late":
            delay_s = self.sim.rng.uniform(20.0, 70.0)
        elif manner == "garbled":
            out = f"*** site banner: maintenance on Monday ***\n{out[:max(0, len(out) - 3)]}"
        elif manner == "empty":
            out = ""
        elif manner == "lies":   # success reported as failure
            code, out, err = 1, "", f"{command.argv[0]}: error: Zero Bytes were transmitted or received"
        self.sim.clock.after(delay_s, lambda: command.end(code, out, err))

    def work_off(self) -> None:
        """A hung slurmctld goes on with what waited in its socket."""
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            if self.sim.rng.random() < 0.7:
                self._execute(command)
        self._watch_nodes()
        self.kick()

    def _execute(self, command: SimCommand) -> tuple[int, str, str]:
        argv = command.argv
        words = {key: value for key, _, value in (word.partition("=") for word in argv[1:])}
        match argv[0]:
            case "sbatch":
                return self._sbatch(command, words)
            case "squeue":
                return self._squeue(words)
            case "scontrol":
                return self._scontrol(argv, words)
            case "scancel":
                return self._scancel(argv[1])
            case "sinfo":
                return 0, "".join(f"{'down' if host.name in self.down else 'idle'}|{host.name}\n"
                                  for host in self.sim.nodes), ""
            case "sacct":
                return self._sacct(words)
        raise AssertionError(f"the simulation knows no {argv}")

    def _sbatch(self, command: SimCommand, words: Mapping[str, str]) -> tuple[int, str, str]:
        site = self.sim.scenario.site
        if site == "refuses_sbatch" and command.owner.host in self.sim.nodes:
            return 1, "", "sbatch: error: Batch job submission failed: Access/permission denied"
        if site == "no_dependency" and words.get("--dependency"):
            return 1, "", NO_DEPENDENCIES.format("sbatch")
        if self._has_stranger(words.get("--exclude")):
            return 1, "", f"sbatch: error: Batch job submission failed: {NO_SUCH_NODE}"
        if "--test-only" in words:
            return self._test_only(words)
        return 0, f"{self.submit(Path(command.argv[-1]), words).id}\n", ""

    def _test_only(self, words: Mapping[str, str]) -> tuple[int, str, str]:
        """When so many nodes are free: now, or never, because nobody else has a job here."""
        excluded = nodeset.expand(words["--exclude"]) if words.get("--exclude") else ()
        free = [host for host in self.sim.nodes if host.name not in excluded and self._is_free(host.name)]
        if len(free) < int(words.get("--nodes", "0")):
            return 1, "", "allocation failure: Requested node configuration is not available"
        waits = any(job.state == "PENDING" for job in self.jobs.values())
        start = datetime.fromtimestamp(self.sim.wall_t() + LATE_START_S * waits).isoformat(timespec="seconds")
        nodes = nodefold.fold([host.name for host in free[:int(words.get("--nodes", "1"))]])
        return 0, "", f"sbatch: Job 999 to start at {start} using 2 processors on nodes {nodes} in partition main"

    def _has_stranger(self, nodelist: str | None) -> bool:
        """Slurm refuses a whole list for one name that it does not know (22.05, measured)."""
        known = {host.name for host in self.sim.nodes}
        return bool(nodelist) and not known.issuperset(nodeset.expand(nodelist or ""))

    def _sacct(self, words: Mapping[str, str]) -> tuple[int, str, str]:
        if not self.sim.scenario.has_sacct:
            return 1, "", "Slurm accounting storage is disabled"
        wanted = words["--jobs"].split(",")
        rows = []
        for job in self.sim.all_jobs:
            # It knows the end of a job that squeue calls COMPLETING for minutes (22.05, measured).
            state = ("PENDING" if job.is_requeued else job.end) if job.state == "COMPLETING" else job.state
            state = "CANCELLED by 1000" if state == "CANCELLED" else state
            if job.id in wanted:
                rows.append(f"{job.id}|{state}|{'1:0' if state == 'FAILED' else '0:0'}\n")
        return 0, "".join(rows), ""

    def submit(self, script: Path, words: Mapping[str, str]) -> Job:
        """A job of this script; `words`: sbatch's options on its command line."""
        given = {**read_directives(script), **words}
        warn_s = float(given.get("--signal", "B:USR2@60").rpartition("@")[2])
        job = Job(str(next(self._numbers)), given["--job-name"], script, int(given["--nodes"]),
                  float(given["--time"]) * 60.0, warn_s, "--no-kill" in given)
        self._depend(job, given.get("--dependency", ""))
        job.exclude = frozenset(nodeset.expand(given["--exclude"])) if given.get("--exclude") else frozenset()
        job.held = "--hold" in given
        self.jobs[job.id] = job
        self.sim.job_submitted(job)
        self.kick()
        return job

    @staticmethod
    def _depend(job: Job, text: str) -> None:
        job.singleton = "singleton" in text
        job.after = next((word.partition(":")[2] for word in text.split(",") if word.startswith("afterany:")), None)

    def _squeue(self, words: Mapping[str, str]) -> tuple[int, str, str]:
        if words.get("--format") == "%L":
            return self._time_left(words["--jobs"])
        if "--steps" in words:   # the attempt has one always: steps overlap here
            helpers = [step for step in self.steps if step.job.id == words["--jobs"] and not step.is_over]
            return 0, "".join(f"{words['--jobs']}.{number}\n" for number in range(len(helpers) + 1)), ""
        if "--jobs" in words:
            wanted = words["--jobs"].split(",")
            jobs = [self.jobs[number] for number in wanted if number in self.jobs]
            if not jobs and len(wanted) == 1:
                return 1, "", "slurm_load_jobs error: Invalid job id specified"
        else:
            names = words["--name"].split(",")
            jobs = [job for job in self.jobs.values() if job.name in names]
        if words.get("--states") != "all":
            jobs = [job for job in jobs if job.is_live]
        line = self._watch_line if words.get("--format") == slurmtext.WATCH_FORMAT else self._line
        return 0, "".join([*(line(job) for job in jobs), *self.sim.before.lines(words.get("--name", ""))]), ""

    def _line(self, job: Job) -> str:
        return f"{job.id}|{job.state}|u|{job.name}|{self._reason(job)}|{nodefold.fold(job.nodes)}\n"

    def _reason(self, job: Job) -> str:
        """As squeue has it; a job that starts in the very moment of a hold runs on as a held one (measured)."""
        if job.held:
            return "JobHeldUser"
        if job.state != "PENDING":
            return "None"
        if job.begin_t > self.sim.clock.t:
            return "BeginTime"
        if not self._may_start(job):
            return "Dependency"
        return "BadConstraints" if len(self.sim.nodes) - len(job.exclude) < job.nodes_wanted else "Resources"

    def _watch_line(self, job: Job) -> str:
        waits = [f"afterany:{one}(unfulfilled)" for one in self.waits_for(job)]
        waits += ["singleton(unfulfilled)"] if job.singleton else []
        ran_s = int(self.sim.clock.t - job.started_t) if job.state == "RUNNING" else 0
        clock = f"{ran_s // 86400}-{ran_s // 3600 % 24:02d}:{ran_s // 60 % 60:02d}:{ran_s % 60:02d}"
        start = f"2024-01-01T00:00:{job.started_t:09.3f}" if job.state != "PENDING" else "N/A"
        nodes = sorted(job.leaving) if job.state == "COMPLETING" else job.nodes
        return "|".join((job.id, job.state, "u", self._reason(job), nodefold.fold(nodes), job.batch_host or "n/a",
                         nodefold.fold(job.exclude) or "(null)", ",".join(waits) or "(null)", "main", start, clock,
                         job.name)) + "\n"

    def _time_left(self, number: str) -> tuple[int, str, str]:
        job = self.jobs.get(number)
        if job is None:
            return 1, "", "slurm_load_jobs error: Invalid job id specified"
        left_s = int(max(0.0, job.started_t + job.limit_s - self.sim.clock.t)) if job.state == "RUNNING" else 0
        return 0, f"{left_s // 3600}:{left_s // 60 % 60:02d}:{left_s % 60:02d}\n", ""

    def _scontrol(self, argv: Sequence[str], words: Mapping[str, str]) -> tuple[int, str, str]:
        if "job" in argv:
            known = self.jobs.get(argv[-1])
            if known is None:
                return 1, "", "slurm_load_jobs error: Invalid job id specified"
            reason = "TimeLimit" if known.end == "TIMEOUT" else "NodeDown" if known.end == "NODE_FAIL" else "None"
            taken = "2024-01-01T00:00:01" if known.end == "PREEMPTED" else "None"
            return 0, (f"JobId={known.id} JobName=sim JobState={known.state} Reason={reason} "
                       f"StartTime=2024-01-01T00:00:00 PreemptTime={taken}\n"), ""
        if "show" in argv:
            return 0, "".join(f"NodeName={host.name} NodeAddr={host.name}\n" for host in self.sim.nodes), ""
        verb = argv[1]
        number = words.get("JobId") or words.get("jobid") or argv[-1]
        jobs = [self.jobs[word] for word in number.split(",") if word in self.jobs]
        jobs = [job for job in jobs if job.state not in ENDED]
        if not jobs:
            return 1, "", "slurm_update error: Invalid job id specified"
        job = jobs[0]
        if verb == "update":
            return self._update(job, words)
        if verb == "requeue":
            return self._requeue_by_owner(job)
        if verb not in ("release", "uhold"):
            raise AssertionError(f"the simulation knows no {argv}")
        for job in jobs:
            job.held = verb == "uhold"
        self.kick()
        return 0, "", ""

    def _requeue_by_owner(self, job: Job) -> tuple[int, str, str]:
        if not job.may_requeue:
            return 1, "", f"Requested operation is presently disabled for job {job.id}"
        if job.state == "PENDING":
            return 1, "", f"Job is pending execution for job {job.id}"
        self.requeue(job)
        return 0, "", ""

    def _update(self, job: Job, words: Mapping[str, str]) -> tuple[int, str, str]:
        for key in ("ExcNodeList", "Dependency", "StartTime", "NumNodes"):
            # A requeued job takes a new ExcNodeList while it still completes, and a StartTime (measured).
            if key in words and job.state != "PENDING" and not (
                    job.is_requeued and key not in ("Dependency", "NumNodes")):
                return 1, "", "slurm_update error: Job is no longer pending execution"
        if words.get("Dependency") and self.sim.scenario.site == "no_dependency":
            return 1, "", NO_DEPENDENCIES.format("scontrol")
        if self._has_stranger(words.get("ExcNodeList")):
            return 1, "", f"{NO_SUCH_NODE} for job {job.id}"
        if "ExcNodeList" in words:   # it replaces the whole list
            job.exclude = frozenset(nodeset.expand(words["ExcNodeList"])) if words["ExcNodeList"] else frozenset()
            self.sim.excluded(job)
        if "Dependency" in words:
            self._depend(job, words["Dependency"])
        if "StartTime" in words:
            job.start_t = self.sim.clock.t + float(words["StartTime"].partition("+")[2] or 0)
            if job.state == "PENDING":
                job.begin_t = job.start_t
        if "NumNodes" in words:
            job.nodes_wanted = int(words["NumNodes"])
        if "Requeue" in words:
            job.may_requeue = words["Requeue"] == "1"
        if "NodeList" in words and job.state == "RUNNING":
            kept = nodeset.expand(words["NodeList"])
            if job.batch_host not in kept:
                return 1, "", "slurm_update error: Batch host cannot be given back"
            job.nodes = [node for node in job.nodes if node in kept]
        if "TimeLimit" in words:
            return 1, "", "slurm_update error: Access/permission denied"
        self.kick()
        return 0, "", ""

    def _scancel(self, number: str) -> tuple[int, str, str]:
        job = self.jobs.get(number)
        if job is None or not job.is_live:
            return (1, "", "scancel: error: Kill job error on job id: Invalid job id specified") if job is None else (
                0, "", "")
        self.cancel(job, "safelaunch")
        return 0, "", ""

    # --- steps ------------------------------------------------------------------------------------------------------

    def _helper(self, command: SimCommand, host: Host) -> None:
        """A helper step: `srun --jobid=J --overlap … --nodelist=NODE CMD…`."""
        clock, rng = self.sim.clock, self.sim.rng
        options = (word.partition("=") for word in command.argv if word.startswith("--"))
        words = {key: value for key, _, value in options}
        job, node = words["--jobid"], self.sim.hosts[words["--nodelist"]]
        if "--overlap" not in words:
            clock.after(1.0, lambda: command.end(1, "", BUSY.format(job)))
            return
        why = self.refuses_step(host, job, [node.name])
        if why is not None:
            wait_s = 0.1 if self.answers and self.sim.net.is_up(host, self.sim.controller) else MESSAGE_TIMEOUT_S
            clock.after(wait_s, lambda: command.end(1, "", f"srun: error: {why}"))
        elif node.dead:
            clock.after(11.0, lambda: command.end(1, "", "srun: Job step aborted: Waiting up to 32 seconds"))
        elif node.is_running and self.sim.net.is_up(host, node) and self.sim.net.is_up(node, host):
            clock.after(rng.uniform(0.05, 0.3), lambda: self._run_helper(command, node))
        # else it hangs: a stopped node keeps its connections, and says nothing

    def _run_helper(self, command: SimCommand, node: Host) -> None:
        argv = list(command.argv)
        if not node.is_running:
            return
        if argv[-1] == "true":
            command.end(0, "", "")
        elif "vanished" in argv:
            command.end(ELSEWHERE_THERE if node.name in self.sim.still_sees else ELSEWHERE_GONE, "", "")
        elif "sweep" in argv:
            mark = argv[argv.index("sweep") + 1]
            self._sweep(command, node, mark)
        elif argv[-1] == "standby":
            job = self.jobs[next(word for word in argv if word.startswith("--jobid=")).partition("=")[2]]
            step = Step(self.sim, node, job, command)
            command.on_term = partial(step.slurm_ends, "", KILL_WAIT_S)
            self.steps.append(step)
        else:
            raise AssertionError(f"the simulation knows no helper {argv}")

    def _sweep(self, command: SimCommand, node: Host, mark: str) -> None:
        tasks = [task for attempt in self.sim.attempts for task in attempt.tasks if task.host is node
                 and mark.endswith(f".{attempt.job}.{attempt.number}") and task.rank in ("new", "loading", "training")]
        for task in tasks:
            task._deaf = True
            if task.guard_alive:
                task.guard_dies()
            task.rank_ends(137, 9)

        def report() -> None:
            left = [1000 + task.index for task in tasks if task.rank in ("loading", "training")]
            said = {"node": node.name, "found": len(tasks), "left": left}
            command.end(0, json.dumps(said) + "\n", "")
        self.sim.clock.after(6.0 if any(task.is_blocked for task in tasks) else 0.1, report)


def read_directives(script: Path) -> dict[str, str]:
    """sbatch's options of a script's #SBATCH lines."""
    found = {}
    for line in script.read_text().splitlines():
        if line.startswith("#SBATCH "):
            key, _, value = line[8:].partition("=")
            found[key.strip()] = value.strip().strip('"')
    return found

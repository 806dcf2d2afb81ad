"""What `scontrol show job` says of the run's own job, as it would say it under sbatch.

Pure; standard library, Python 3.9.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Optional

_VALUED = ("-M", "--clusters", "-u", "--uid", "--federation")
_JOBS = ("j", "jo", "job", "jobs", "jobi", "jobid")
_FIRST = "JobId="   # each job's record begins so


class ScontrolWords:
    """A scontrol command line: its options, the subcommand's words, and of show job, requeue or update the ids."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.options: list[str] = []
        self.words: list[str] = []
        rest = iter(argv)
        for word in rest:
            if word.startswith("-") and word != "-":
                self.options.append(word)
                if word in _VALUED:
                    self.options.append(next(rest, ""))
            else:
                self.words.append(word)
        verb, what, *ids = [*self.words, "", ""][:max(2, len(self.words))]
        self.is_show = len(verb) > 1 and "show".startswith(verb.lower())
        entity, equals, value = what.partition("=")
        self.is_jobs = self.is_show and entity.lower() in _JOBS
        self.ids = [one for word in ([value, *ids] if equals else ids) for one in word.split(",") if one]
        self.is_requeue = verb.lower() == "requeue"
        if self.is_requeue:
            self.ids = [one.partition("=")[2] or one for word in self.words[1:] for one in word.split(",")
                        if one.lower() not in ("incomplete", "job", "jobid", "")]
        self.new_name: Optional[str] = None   # of `update`, which has `left` words beside it
        self.left: list[str] = []
        if len(verb) > 2 and "update".startswith(verb.lower()):
            self._read_update(self.words[1:])
        self.is_batch_script = verb.lower() == "write" and what.lower() == "batch_script"
        self.is_json = any(option.startswith("--json") for option in self.options)

    def _read_update(self, words: Sequence[str]) -> None:
        self.ids, is_id = [], False
        for word in words:
            key, equals, value = word.partition("=")
            if is_id or key.lower() in _JOBS:
                self.ids += [one for one in (value if equals else word if is_id else "").split(",") if one]
                is_id = not is_id and not equals
            elif equals and key.lower() in ("name", "jobname"):
                self.new_name = value
            elif equals:
                self.left.append(word)


def as_sbatch_has_it(text: str, job: str, hidden: str, facts: Mapping[str, str]) -> str:
    """The records of jobs, that of `job` with these facts ("JobName": …); without other jobs of the name `hidden`."""
    # Without `re`, which takes 5 ms to import.
    before, *records = ("\n" + text).replace("\n" + _FIRST, "\n\0" + _FIRST)[1:].split("\0")
    kept = [before]
    for record in records:
        id = record[len(_FIRST):]
        if id.startswith(job) and not id[len(job):len(job) + 1].isdigit():
            kept.append(_with_facts(record, facts))
        elif " JobName=%s " % hidden not in record.replace("\n", " \n", 1).partition("\n")[0]:
            kept.append(record)
    return "".join(kept)


def _with_facts(record: str, facts: Mapping[str, str]) -> str:
    for name, value in facts.items():
        at = record.find(name + "=")
        while at > 0 and not record[at - 1].isspace():
            at = record.find(name + "=", at + 1)
        if at >= 0:
            start = at + len(name) + 1
            record = record[:start] + value + record[_end_of_value(record, start):]
    return record


def _end_of_value(record: str, start: int) -> int:
    """Where it ends: at the line's end, or before the next NAME=; a value may have blanks in it."""
    for at in range(start, len(record)):
        if record[at] == "\n":
            return at
        if record[at].isspace():
            name, equals, _ = record[at:].lstrip().partition("=")
            if equals and "A" <= name[:1] <= "Z" and name.replace("/", "").replace(":", "").isalpha():
                return at
    return len(record)


def of_link(record: str, job: str, link: str, state: str) -> str:
    """A link's record, made of the own job's, for whose end it waits in this `state`."""
    facts = {"JobState": state, "Reason": "Dependency", "Dependency": "afterany:%s(unfulfilled)" % job,
             "RunTime": "00:00:00", "StartTime": "Unknown", "EndTime": "Unknown", "NodeList": "(null)",
             "BatchHost": "", "Restarts": "0"}
    return _with_facts(record.replace("JobId=%s" % job, "JobId=%s" % link, 1), facts)


def json_as_sbatch_has_it(text: str, job: str, hidden: str, facts: Mapping[str, str]) -> str:
    """The same of --json."""
    import json

    data = json.loads(text)
    names = {"JobName": "name", "Command": "command", "StdOut": "standard_output", "StdErr": "standard_error"}
    jobs = []
    for one in data.get("jobs", ()):
        if str(one.get("job_id")) == job:
            one.update({names[name]: value for name, value in facts.items() if name in names})
            if "Restarts" in facts:
                one["restart_cnt"] = int(facts["Restarts"])
        elif one.get("name") == hidden:
            continue
        jobs.append(one)
    data["jobs"] = jobs
    return json.dumps(data, indent=2) + "\n"

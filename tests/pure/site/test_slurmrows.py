"""What a site's Slurm says of itself, and what that is judged to mean for a run."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from safelaunch.site.siteanswers import (
    SiteAnswers,
    SiteLimit,
    parse_config,
    parse_limits,
    parse_partition,
)
from safelaunch.site.sitefolder import CAUTION, NOT_SAFE, OK, UNKNOWN
from safelaunch.site.slurmrows import ROWS, judge_slurm
from tests.slurmwords.texts import Text, load_all
from tests.tables import each

TEXTS = {(text.release, text.name): text for text in load_all() if text.name.startswith("site-")}
RELEASES = sorted({release for release, _ in TEXTS})


def said(release: str, name: str) -> Text:
    return TEXTS[release, f"site-{name}"]


def recorded(release: str, suffix: str = "") -> SiteAnswers:
    """The answers of one recording, as site.io.doctor.ask_slurm puts them together."""
    text = {name: said(release, name + suffix) for name in ("config", "partition", "limits", "qos")}
    limits = None if text["limits"].rc else parse_limits(text["limits"].text, text["qos"].text)
    return SiteAnswers(parse_config(text["config"].text), parse_partition(text["partition"].text, None), limits, "", "")


# A recorded site, on which nothing can harm a run.
GOOD = replace(recorded("22.05", "-with-accounts"), config={
    **(recorded("22.05", "-with-accounts").config or {}), "unkillablesteptimeout": "300 sec", "taskplugin":
    "task/cgroup,task/affinity", "constrainramspace": "yes", "constraindevices": "yes", "proctracktype":
    "proctrack/cgroup", "accountingstorageenforce": "associations,limits,qos", "killwait": "30 sec",
    "slurmdtimeout": "300 sec"})


def verdicts(answers: SiteAnswers) -> dict[str, str]:
    return {row.check: row.verdict for row in judge_slurm(answers)}


def test_on_a_good_site_nothing_harms_a_run() -> None:
    assert set(verdicts(GOOD).values()) == {OK}, judge_slurm(GOOD)
    assert set(verdicts(GOOD)) == set(ROWS) - {"submit hosts"}


# (row, a change of the configuration, a change of the answers, the verdict, a word of the sentence or the setting)
Change = tuple[str, dict[str, str], dict[str, object], str, str]
PARTITION = dict(GOOD.partition or {})
CHANGES: tuple[Change, ...] = (
    ("release", {"slurm_version": "20.02.7"}, {}, CAUTION, "no standby"),
    ("release", {"slurm_version": "31.05.1"}, {}, CAUTION, "unknown"),
    ("release", {}, {"config": None}, UNKNOWN, "scontrol show config"),
    ("accounting", {"accountingstoragetype": "accounting_storage/none"}, {}, CAUTION, "safelaunch stop"),
    ("accounting", {"accountingstoragetype": ""}, {}, CAUTION, "safelaunch stop"),
    ("MinJobAge", {"minjobage": "10 sec"}, {}, CAUTION, "forgets"),
    ("KillWait", {"killwait": "5 sec"}, {}, CAUTION, "to save"),
    ("KillWait", {"killwait": "300 sec"}, {}, CAUTION, "delay a restart"),
    ("unkillable", {"unkillablesteptimeout": "60 sec"}, {}, CAUTION, "spare_nodes"),
    ("dead nodes", {"slurmdtimeout": "0 sec"}, {}, CAUTION, "standby: true"),
    ("dead nodes", {"slurmdtimeout": "3600 sec"}, {}, CAUTION, "standby: true"),
    ("lost nodes", {"returntoservice": "0"}, {}, CAUTION, "administrator"),
    ("requeue", {"jobrequeue": "0"}, {}, OK, "only a default"),
    ("bad exit", {"killonbadexit": "1"}, {}, OK, "kill_on_bad_exit"),
    ("PrivateData", {"privatedata": "jobs,usage"}, {}, CAUTION, "teammates"),
    ("PrivateData", {"privatedata": "jobs,nodes"}, {}, CAUTION, "max_excluded"),
    ("processes", {"proctracktype": "proctrack/linuxproc"}, {}, CAUTION, "mark"),
    ("cgroups", {"taskplugin": ""}, {}, CAUTION, "exclusive"),
    ("cgroups", {"constrainramspace": "no"}, {}, OK, "shared"),
    ("srun ports", {"srunportrange": "60001-63000"}, {}, CAUTION, "--job"),
    ("preemption", {"preempttype": "preempt/qos", "preemptmode": "REQUEUE"}, {"partition": None}, CAUTION,
     "at once"),
    ("preemption", {"preempttype": "preempt/partition_prio", "preemptmode": "REQUEUE"},
     {"partition": {**PARTITION, "preemptmode": "CANCEL", "gracetime": "120"}}, CAUTION, "120 s"),
    ("preemption", {"preempttype": "preempt/partition_prio", "preemptmode": "GANG,SUSPEND"},
     {"partition": {**PARTITION, "preemptmode": "SUSPEND"}}, CAUTION, "suspended"),
    ("preemption", {"preempttype": "preempt/partition_prio", "preemptmode": "REQUEUE"}, {}, OK, "not preempted"),
    ("partition", {}, {"partition": {**PARTITION, "state": "DRAIN"}}, NOT_SAFE, "starts"),
    ("partition", {}, {"partition": {**PARTITION, "maxnodes": "1"}}, CAUTION, "next job"),
    ("partition", {}, {"partition": None}, UNKNOWN, "--partition"),
    ("submit hosts", {}, {"partition": {**PARTITION, "allocnodes": "login[1-2]"}}, CAUTION, "safelaunch watch"),
    ("sbatch", {}, {"plain": "allocation failure: Invalid account or account/partition combination specified"},
     CAUTION, "--account"),
    ("sbatch", {}, {"plain": None, "dependent": None}, UNKNOWN, "not known"),
    ("dependencies", {}, {"dependent": "allocation failure: Job dependency problem"}, CAUTION, "via: auto"),
    ("dependencies", {}, {"dependent": "no waiting jobs on this site, please"}, CAUTION, "via: auto"),
    ("dependencies", {}, {"plain": "Invalid account", "dependent": "Invalid account"}, UNKNOWN, "via: auto"),
    ("dependencies", {}, {"dependent": None}, UNKNOWN, "via: auto"),
    ("jobs", {}, {"limits": (SiteLimit("account a", 1),)}, CAUTION, "via: requeue"),
    ("jobs", {}, {"limits": (SiteLimit("account a", 50), SiteLimit("QOS q", 4))}, CAUTION, "2 runs at a time"),
    ("jobs", {}, {"limits": (SiteLimit("account a", 200),)}, OK, "100 runs"),
    ("jobs", {}, {"limits": None}, UNKNOWN, "via: auto"),
    ("jobs", {"accountingstorageenforce": ""}, {"limits": (SiteLimit("account a", 1),)}, OK, "any number"),
)


@each(("check", "config", "changes", "verdict", "words"), CHANGES)
def test_what_harms_a_run_has_a_row_that_says_so_and_what_to_set(
    check: str, config: dict[str, str], changes: dict[str, object], verdict: str, words: str
) -> None:
    answers = replace(GOOD, config={**(GOOD.config or {}), **config})
    rows = {row.check: row for row in judge_slurm(replace(answers, **changes))}   # type: ignore[arg-type]
    row = rows[check]
    assert row.verdict == verdict, row
    assert words in f"{row.measured} {row.means} {row.setting}", row
    others = {one.verdict for name, one in rows.items() if name != check}
    assert others == {OK} or {"config", "partition", "plain"} & set(changes), rows


def test_each_row_is_tried_with_what_harms() -> None:
    assert {change[0] for change in CHANGES} == set(ROWS)


@each("release", RELEASES)
def test_what_a_release_says_of_itself_is_read(release: str) -> None:
    answers = recorded(release)
    assert (answers.word("SLURM_VERSION") or "").startswith(release)
    assert verdicts(answers) == {
        "release": OK, "partition": OK, "sbatch": OK, "dependencies": OK, "jobs": OK, "accounting": CAUTION,
        "MinJobAge": OK, "preemption": OK, "requeue": OK, "bad exit": OK, "KillWait": CAUTION, "unkillable": CAUTION,
        "dead nodes": OK, "lost nodes": OK, "PrivateData": OK, "processes": CAUTION, "cgroups": CAUTION,
        "srun ports": OK}
    assert answers.seconds("KillWait") == 2 and answers.words("SchedulerParameters")


@each("release", RELEASES)
def test_accounts_of_a_release_are_read(release: str) -> None:
    assert recorded(release).limits is None, "sacctmgr fails where no accounts are kept"
    with_accounts = recorded(release, "-with-accounts")
    assert with_accounts.limits == (SiteLimit("account sl-project", None), SiteLimit("QOS normal", None))
    assert verdicts(with_accounts)["accounting"] == OK


def test_limits_of_an_association_and_of_its_own_qos_count_and_others_do_not() -> None:
    found = parse_limits("abc|gpu|normal,long|12\n", "normal|\nlong|2\nother|1\n")
    assert found == (SiteLimit("account abc in gpu", 12), SiteLimit("QOS normal", None), SiteLimit("QOS long", 2))


def test_the_partition_that_was_named_is_taken_else_the_default_one() -> None:
    text = said("22.05", "partition").text
    assert (parse_partition(text, None) or {})["partitionname"] == "main"
    assert (parse_partition(text, "low") or {})["gracetime"] == "5"
    assert parse_partition(text, "nosuch") is None


GARBLED = st.one_of(st.text(), st.sampled_from(["\x00" * 9, "A" * (1 << 20), "KillWait = " + "9" * 99_999, "a=b\n" * 9,
                                                "SlurmdTimeout = \nPreemptMode = ,,,", "PartitionName=\n", "|||||"]))


@given(GARBLED, GARBLED, GARBLED, GARBLED)
def test_no_answer_however_odd_breaks_a_row(config: str, partition: str, limits: str, qos: str) -> None:
    values = dict.fromkeys(GOOD.config or {}, config)
    for read in (parse_config(config), values):
        answers = SiteAnswers(read, parse_partition(partition, None), parse_limits(limits, qos), config, partition)
        assert {row.verdict for row in judge_slurm(answers)} <= {OK, CAUTION, UNKNOWN, NOT_SAFE}


def test_no_answer_at_all_is_unknown_and_never_ok() -> None:
    assert set(verdicts(SiteAnswers()).values()) == {UNKNOWN}

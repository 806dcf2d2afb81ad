"""A user's own sbatch script as a config: what its #SBATCH lines become, and what is refused, with its line."""

from __future__ import annotations

import pytest

from safelaunch.config.resolve import ConfigLayer, Resolved, resolve, resolve_each
from safelaunch.errors import ConfigError
from safelaunch.launch.settings import OwnScript
from safelaunch.run import plan as plans
from safelaunch.script.script import directives, render
from tests.tables import each


def read(text: str, *overrides: str, file: str = "/work/job.slurm") -> Resolved:
    return resolve([ConfigLayer("file", file, text)], ["cluster=slurm", *overrides], {"HOME": "/home/a"}, (), "/work")


HEAD = "#!/bin/bash\n"


def test_a_script_is_kept_as_it_is_and_needs_no_other_key() -> None:
    text = HEAD + "#SBATCH --nodes=2\n\necho \"$RESUME_ARGS ${HOME}\"\ncat <<END\n#SBATCH --array=1-3\nEND\n"
    config = read(text).config

    assert config["command"] == text and config["launch"]["with"] == "script" and config["resume"]["by"] == "training"
    assert config["slurm"] == {"nodes": 2} and config["name"] == "job"
    assert plans.of_config(config, "1234").command == text


def test_options_are_read_as_sbatch_reads_them() -> None:
    slurm = read(HEAD + '#SBATCH -N 4 -t 1-00 --part=gpu\n#SBATCH --gres gpu:8 # all\n#SBATCH -J "my run"\n').config
    assert slurm["slurm"] == {"nodes": 4, "time": "1-00", "partition": "gpu", "gres": "gpu:8"}
    assert slurm["name"] == "my-run"


def test_an_override_counts_more_than_the_script() -> None:
    assert read(HEAD + "#SBATCH -N 4\n", "slurm.nodes=2", "name=x").config["slurm"]["nodes"] == 2


def test_a_scripts_own_sruns_get_only_what_somebody_has_asked_for() -> None:
    for overrides, words in ((), ()), (("srun.wait=0",), ("--wait=0",)), (
            ("srun.kill_on_bad_exit=1", "srun.extra=[--hint=nomultithread]"),
            ("--kill-on-bad-exit=1", "--hint=nomultithread")):
        assert plans.of_config(read(HEAD + "#SBATCH -N 1\n", *overrides).config, "1234").srun.words == words


def test_what_safelaunch_does_itself_is_left_out_and_said_with_its_line() -> None:
    found = read(HEAD + "#SBATCH -N 1\n#SBATCH -o %j.out\n#SBATCH --requeue\n#SBATCH --signal=USR1@300\n")

    assert set(found.config["slurm"]) == {"nodes"}
    assert found.config["kill_switch"]["signal"] == "SIGUSR1"
    assert [note.split(" ")[0] for note in found.notes[:2]] == [f"/work/job.slurm:{line}:" for line in (4, 5)]
    assert "must load its newest checkpoint itself" in found.notes[-1]


@each(("lines", "slurm"), [
    ("-N 1 --tasks-per-node=2 --cpus-per-task 2", {"nodes": 1, "ntasks-per-node": 2, "cpus-per-task": 2}),
    ("-N2-2 --context=x --ntasks-per-tres=1", {"nodes": 2, "context": "x", "ntasks-per-tres": 1}),
    ("-N 1 --image=docker:a/b:1", {"nodes": 1, "image": "docker:a/b:1"}),
    ("-N 1 --image docker:a/b:1 --uenv=x/1 --view", {"nodes": 1, "image": "docker:a/b:1", "uenv": "x/1", "view": True}),
    ("-N 1 --input=/dev/null --wrap=x --dependency=afterok:1 --hold -b now+1hour",
     {"nodes": 1, "dependency": "afterok:1", "hold": True, "begin": "now+1hour"}),
    ("-N 1 --comment='lr=${LR} $HOME'", {"nodes": 1, "comment": "lr=${LR} $HOME"}),
    ("-N 1 --export=ALL", {"nodes": 1}),
], ids=lambda value: str(value))
def test_options_are_taken_as_sbatch_takes_them(lines: str, slurm: dict[str, object]) -> None:
    assert read(HEAD + f"#SBATCH {lines}\n").config["slurm"] == slurm


@each(("option", "way_out"), [
    ("--container-image=x", "at srun in a script"), ("--environment=x", "container: in train.yaml"),
    ("--container=x", "at srun in a script"), ("--singularity-container=x", "at srun in a script"),
    ("--export=NONE", "-- --export=ALL"), ("--export=A=1", "env.NAME=VALUE"), ("--export-file=x", "env.NAME=VALUE"),
    ("--wait", "submit --wait FILE"), ("--test-only", "submit --dry-run FILE"), ("--input=x", "`< FILE`"),
    ("--gpu-per-node=8", "write slurm.--gpu-per-node=VALUE behind the file"), ("-N 1-2", "a range of nodes"),
    ("--cluster=x", "login node"), ("--time", "needs a value"), ("foo", "not a flag of sbatch"),
])
def test_what_is_refused_names_a_way_out_that_a_script_has(option: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(HEAD + f"#SBATCH -N 1\n#SBATCH {option}\n")
    assert [(one.line, way_out in one.text) for one in refused.value.problems] == [(3, True)], refused.value.problems


@each("option", ["container-image", "environment", "container_mounts", "container"])
def test_train_yaml_refuses_containers_of_the_whole_job_too(option: str) -> None:
    with pytest.raises(ConfigError, match=r"container: in train\.yaml"):
        read(f"command: x\nslurm: {{{option}: y}}\n", file="train.yaml")


def test_a_typed_way_out_can_be_followed() -> None:
    refused = HEAD + "#SBATCH -N 1 --export=NONE -o x\n"
    found = resolve([ConfigLayer("file", "job.slurm", refused)], ["cluster=slurm", "slurm.--gpu-per-node=8"], {},
                    ["--export=ALL", "-J", "later", "-o", "y"])
    assert found.config["slurm"] == {"nodes": 1, "gpu-per-node": 8} and found.config["name"] == "later"
    assert (found.config["own"]["job_name"], found.config["own"]["output"]) == ("later", "y")


def test_variables_of_export_are_set() -> None:
    found = read(HEAD + "#SBATCH -N 1 --export=ALL,LR=3e-4,HOME,OPTS=a=${b}\n")
    assert found.config["env"] == {"LR": "3e-4", "OPTS": "a=${b}"}
    assert any(":2: --export=ALL,LR=3e-4,HOME,OPTS=a=${b} sets env.LR, env.OPTS" in note for note in found.notes)


@each(("lines", "said"), [
    ("set -e\n#SBATCH --nodes=2\n",
     ":3: #SBATCH behind the first command (line 2), where sbatch reads no option: --nodes=2"),
    ("# SBATCH --nodes=2\n", ":2: '# SBATCH --nodes=2' is a comment"),
    (" #SBATCH --nodes=2\n", ":2: '#SBATCH --nodes=2' is a comment"),
    ("#sbatch -N 2\n", ":2: '#sbatch -N 2' is a comment"), ("#SBTACH -N 2\n", "is a comment"),
    ("#$ -N x\n", "Grid Engine"),
    ("#SBATCH -o $HOME/x\n#SBATCH -J ${USER}\n", ":2: sbatch fills in no variable in a #SBATCH line: $HOME (line 2), "
     "${USER} (line 3) stay as written"),
    ("#SBATCH -o a.out -e a.err\n", ":2: --error=a.err: that file and the one of --output are links to one log"),
    ("#SBATCH -o loss.out\nsrun true\ngrep -c loss loss.out\n", ":4: the script's own output: a file that only you"),
    ("srun true\ngrep a slurm-1.out\ngzip slurm-*.out\n", ":4: the script's own output is a link"),
    ("##SBATCH -N 2\n", "is a comment"), ("## SBATCH --time=5\n", "is a comment"), ("## SBATCH lines\n", None),
    ("#COBALT -n 2\n", "Cobalt"), ("#@ node = 2\n", "LoadLeveler"), ("#@author me\n", None),
    ("#SBATCH -o ~/logs/%j.out\n", "does not expand ~"), ("#SBATCH --error=~me/e\n", "does not expand ~"),
    ("#SBATCH -o logs/a~b\n", None), ("# SBATCH options\n", None), ("set -e\ncat <<E\n#SBATCH -N 2\nE\n", None),
    ("set -e\n#SBATCH\n", None), ("#SBATCH -o %u\n", None),
], ids=lambda value: str(value))
def test_what_only_looks_like_an_option_is_said(lines: str, said: str | None) -> None:
    notes = [note for note in read(HEAD + lines).notes if "left out" not in note and "started again" not in note]
    assert (notes == []) if said is None else any(said in note for note in notes), notes


def test_a_long_script_is_taken_and_a_long_command_is_not() -> None:
    text = HEAD + "#SBATCH -N 1\ncat <<X\n" + ("x" * 99 + "\n") * 4_000 + "X\n"
    assert "SL_COMMAND='#!/bin/bash" in "\n".join(_values_of(text))
    with pytest.raises(ConfigError, match="more than a process can be given"):
        read(f"command: {'x' * 130_000}\n", file="train.yaml")


def _values_of(text: str) -> list[str]:
    plan = plans.of_config(read(text).config, "1234")
    return render("# >>> directives\n# <<< directives\n# >>> values\n# <<< values\n$SL_COMMAND\n", plan, python="p",
                  library=()).splitlines()


@each(("lines", "overrides", "own"), [
    ("", (), {"job_name": "job.slurm"}),
    ("#SBATCH -J 'nä m/e' -o $HOME/%x.out --open-mode=append\n#SBATCH --signal=B:USR1@30 -e err\n", (),
     {"job_name": "nä m/e", "output": "$HOME/%x.out", "error": "err", "open_mode": "append", "signal": "B:USR1@30"}),
    ("#SBATCH -J first\n", ("name=second",), {"job_name": None}),
], ids=["nothing", "all", "named on the command line"])
def test_what_the_script_says_of_its_job_is_kept_as_written(lines: str, overrides: tuple[str, ...],
                                                            own: dict[str, str]) -> None:
    found = plans.of_config(read(HEAD + "#SBATCH -N 1\n" + lines, *overrides).config, "1234").own
    assert found == OwnScript(path="/work/job.slurm", **own)   # type: ignore[arg-type]


@each(("args", "kept"), [
    ("[cfg.yaml, 3, 1.10, true, '', 'a b', \"x\\ny\", '$HOME']",
     ("cfg.yaml", "3", "1.10", "true", "", "a b", "x\ny", "$HOME")),
    ("[]", ()),
], ids=["all kinds", "none"])
def test_arguments_reach_the_script_as_written(args: str, kept: tuple[str, ...]) -> None:
    assert plans.of_config(read(HEAD + "#SBATCH -N 1\n", f"args={args}").config, "1234").own.args == kept


def test_arguments_are_for_scripts_only() -> None:
    with pytest.raises(ConfigError, match=r"train\.yaml:2:.*args: are those of a script"):
        read("command: python x\nargs: [a]\n", file="train.yaml")
    with pytest.raises(ConfigError, match="args: expected text"):
        read(HEAD + "#SBATCH -N 1\n", "args=[{a: 1}]")


def test_the_signal_before_the_time_limit_goes_to_the_scripts_own_shell_where_it_asks_for_that_and_has_a_trap() -> None:
    for option, trap, signal, is_for_shell in (
            ("B:USR1@30", "trap save USR1\n", "SIGUSR1", True), ("b:SIGTERM", "trap save TERM\n", "SIGTERM", True),
            ("B:10@60", "trap save USR1\n", "SIGUSR1", True), ("B:USR1", "", "SIGUSR1", False),
            ("R:USR2@9", "trap x USR2\n", "SIGUSR2", False), ("USR1", "trap x USR1\n", "SIGUSR1", False),
            ("B:CONT@9", "trap x CONT\n", "SIGUSR2", True)):
        found = read(HEAD + f"#SBATCH -N 1 --signal={option}\n{trap}")
        plan = plans.of_config(found.config, "1234")
        assert (plan.kill_switch.signal, plan.own.traps_signal(plan.command)) == (signal, is_for_shell), option


def test_nodes_follow_from_tasks_only_where_that_is_certain() -> None:
    assert read(HEAD + "#SBATCH -n 16 --ntasks-per-node=8\n").config["slurm"]["nodes"] == 2
    assert read(HEAD + "#SBATCH -n 1\n").config["slurm"]["nodes"] == 1
    with pytest.raises(ConfigError, match=r"job\.slurm:2.*slurm\.ntasks.*needs slurm\.nodes"):
        read(HEAD + "#SBATCH -n 16\n")


@each(("options", "nodes"), [
    ("--nodelist=n1", 1), ("-w n[0-1]", 2), ("-w n0,n1,n0,m[3-5]", 5), ("-w n[0-1] -N 1", 1), ("-n 4 -w n[0-1]", 2),
    ("-n 4 --ntasks-per-node=1 -w n[0-3]", 4),
])
def test_nodes_follow_from_a_list_of_nodes_as_under_sbatch(options: str, nodes: int) -> None:
    assert read(HEAD + f"#SBATCH {options}\n").config["slurm"]["nodes"] == nodes


@each("options", ["-w ./hosts", "-w n[0-", "-n 2 -w n[0-3]", "-w @group"])
def test_a_list_of_nodes_that_cannot_be_counted_needs_nodes_beside_it(options: str) -> None:
    with pytest.raises(ConfigError, match=r"needs slurm\.nodes"):
        read(HEAD + f"#SBATCH {options}\n")


@each(("text", "said"), [
    ("#SBATCH -N 1\n#SBATCH --array=1-x\n", r":3:.*no array of tasks"),
    ("#SBATCH -N 1\n#SBATCH --array=0-9999\n", r":3:.*at most 1000 tasks"),
    ("#SBATCH -N 1\n#SBATCH --export=NONE\n", r":3:.*-- --export=ALL"),
    ("#SBATCH -N 1\ntrap 'scontrol requeuehold $SLURM_JOB_ID' USR1\n", r":3:.*safelaunch hold"),
    ("#SBATCH -N 1\n#SBATCH hetjob\n#SBATCH -N 2\n", r":3:.*heterogeneous"),
    ("#SBATCH -N 1\nsrun --het-group=0 a\n", r":3:.*heterogeneous"),
    ("#SBATCH -N 1\n/usr/bin/srun a\n", r":3:.*srun by its path"),
    ("#SBATCH -N 1\n#SBATCH --gpu-per-node=8\n", r":3:"),
    ("#SBATCH -N 1-4\n", r":2:.*slurm\.nodes"),
    ("#SBATCH -N 1\necho\r\n", "DOS"),
])
def test_what_cannot_be_supervised_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(HEAD + text)


def test_setup_and_a_command_that_is_no_script_are_refused() -> None:
    with pytest.raises(ConfigError, match="write it into the script"):
        read(HEAD + "#SBATCH -N 1\n", "setup=module load cuda")
    with pytest.raises(ConfigError, match=r"safelaunch submit job\.slurm"):
        read("command: python x\nlaunch: {with: script}\n", file="train.yaml")


def test_the_job_asks_for_what_the_script_asks_for_and_no_more() -> None:
    lines = directives(plans.of_config(read(HEAD + "#SBATCH -N 2 --gres=gpu:8\n", "spare_nodes=1").config, "1234"))
    assert "#SBATCH --nodes=3" in lines and "#SBATCH --gres=gpu:8" in lines
    assert not any("ntasks" in line for line in lines)


@each(("value", "tasks", "at_once"), [
    ("0-3", "0 1 2 3", None), ("1,3,5-9:2%2", "1 3 5 7 9", 2), ("7", "7", None), ("3,1-2%1", "1 2 3", 1)])
def test_an_array_is_a_sweep_of_the_script_with_its_tasks_numbers(value: str, tasks: str, at_once: int | None) -> None:
    text = HEAD + f"#SBATCH -N 1 -J exp -a {value}\npython train.py --lr ${{LRS[$SLURM_ARRAY_TASK_ID]}}\n"
    found = list(resolve_each([ConfigLayer("file", "/work/job.slurm", text)], ["cluster=slurm"], {"HOME": "/h"}))

    assert [one.config["env"]["SLURM_ARRAY_TASK_ID"] for one in found] == tasks.split()
    assert [one.config["name"] for one in found] == [f"exp-task{task}" for task in tasks.split()]
    assert found[0].config["max_parallel"] == at_once and found[0].config["command"] == text
    assert found[0].config["env"]["SLURM_ARRAY_TASK_MAX"] == max(tasks.split(), key=int)
    assert "array" not in found[0].config["slurm"]
    assert read(text, "sweep=null", "max_parallel=null").point is None


def test_a_chain_of_jobs_is_one_run() -> None:
    found = read(HEAD + "#SBATCH -N 1 -o %A_%a.out --array=1-10%1\n# not $SLURM_ARRAY_TASK_ID\nsrun python train.py\n")
    assert found.config["sweep"] is None and found.config["env"] == {}
    assert any(note.startswith("/work/job.slurm:2: --array is left out: a chain") for note in found.notes), found.notes


@pytest.mark.parametrize(("start", "said"), [
    ("", "does not begin with #!"), ("\ufeff#!/bin/bash\n", "byte order mark")], ids=["nothing", "mark"])
def test_a_script_that_sbatch_does_not_take_for_one_is_refused_as_a_script(start: str, said: str) -> None:
    text = f"{start}#SBATCH -N 2\nset -e\nsrun python train.py\n"

    with pytest.raises(ConfigError) as refused:
        resolve([ConfigLayer("file", "job.slurm", text)], [], {"HOME": "/"})

    assert [(one.line, said in one.text) for one in refused.value.problems] == [(1, True)]

"""resolve: what a train.yaml means, and every problem in it at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.base.yaml.yamltext import parse_document
from safelaunch.config.handed import BASHS_OWN, MAX_VALUE_BYTES
from safelaunch.config.keys import KEYS
from safelaunch.config.resolve import ConfigLayer, Resolved, resolve
from safelaunch.config.schema import train_schema
from safelaunch.errors import ConfigError
from safelaunch.launch.launchers import LAUNCHERS
from safelaunch.run.plan import of_config
from safelaunch.script.script import render
from tests.pure.config.json_schema import accepts, plain
from tests.tables import each

MINIMAL = "command: python train.py\n"

# An example of the design.
DESIGN = """\
version: 1
name: bloom-mini
run_dir: ${SCRATCH}/runs/${name}
cluster: auto
command: python -u pretrain.py --config conf.yaml ${RESUME_ARGS}
setup: |
  module load cuda/12.4
  source venv/bin/activate
env: {NCCL_DEBUG: WARN}
slurm: {account: abc@h100, partition: gpu, nodes: 16, gpus_per_node: 8, cpus_per_task: 96, time: "20:00:00",
        exclude: "gpu[012,035]"}
srun: {wait: 60, kill_on_bad_exit: 1, extra: [--hint=nomultithread]}
launch: {with: torchrun, nproc_per_node: 8, tee: 3}
resume: {dir: ckpt, format: auto, args: "--load {path}"}
progress: {step: auto}
restart: {max_restarts: 30, max_without_progress: 3, backoff: 60s, via: auto}
kill_switch: {file: control/kill, grace: 15m, group: bigsci, signal: SIGUSR2}
preserve_site: {for: 10000s, when: [unknown, hang], nodes: suspects}
"""


def resolved(text: str, *overrides: str, flags: tuple[str, ...] = (), **environ: str) -> Resolved:
    return resolve([ConfigLayer("file", "train.yaml", text)], overrides, environ, flags, "/project")


def config(text: str, *overrides: str, flags: tuple[str, ...] = (), **environ: str) -> dict[str, Any]:
    return resolved(text, *overrides, flags=flags, **environ).config


def problems(text: str, *overrides: str, flags: tuple[str, ...] = (), **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        resolved(text, *overrides, flags=flags, **environ)
    return [str(problem) for problem in caught.value.problems]


def test_the_designs_example_means_what_the_design_says() -> None:
    got = config(DESIGN, SCRATCH="/scratch")
    assert got["run_dir"] == "/scratch/runs/bloom-mini"
    assert got["setup"] == "module load cuda/12.4\nsource venv/bin/activate\n"
    assert got["slurm"] == {
        "nodes": 16, "account": "abc@h100", "partition": "gpu", "gpus-per-node": 8, "cpus-per-task": 96,
        "time": "20:00:00", "exclude": "gpu[012,035]",
    }  # fmt: skip
    assert (got["kill_switch"]["grace"], got["preserve_site"]["for"], got["restart"]["backoff"]) == (900, 10000, 60)


def test_one_line_is_enough_and_everything_else_has_its_default() -> None:
    assert config(MINIMAL) == {
        "version": 1, "name": "train", "run_dir": "/project/runs/train", "cluster": "auto",
        "command": "python train.py", "setup": "", "env": {}, "slurm": {"nodes": 1},
        "srun": {"wait": 60, "kill_on_bad_exit": 1, "extra": []},
        "launch": {"with": "none", "call": [], "nproc_per_node": None, "tee": 3, "torchrun": "auto",
                   "logs": "merged", "login_shell": False, "args": []},
        "resume": {"dir": None, "format": "auto", "pattern": None, "args": "", "by": "command", "keep_trying": 2,
                   "step": None, "shared": False},
        "progress": {"step": "auto", "loss": "auto", "step_time": "auto"},
        "restart": {"max_restarts": 30, "max_without_progress": 3, "max_jobs": None, "max_time": None, "backoff": 60.0,
                    "via": "auto", "policy": None, "on_lost_progress": "stop", "wait_for_nodes": 600.0,
                    "warm": "false"},
            "script": None,
            "args": [],
        "container": {"runtime": None, "image": None, "mounts": [], "workdir": None, "env": None, "extra": []},
        "spare_nodes": 0, "min_nodes": None, "nodes_multiple_of": 1, "before_resize": None,
        "sweep": None, "max_parallel": None,
            "standby": True,
            "hang": {"no_progress": "auto", "first_step": 3600.0, "dump_stacks": True, "then": "restart"},
            "on_nan": "report",
            "slow": {"tolerance": "5%", "then": "report"},
            "suspects": {"exclude": True, "max_excluded": "10%", "forget_after": 604800.0, "ledger": None},
            "checks": {"boot": False, "after_failure": "auto", "allreduce": False, "disk": [], "timeout": 60.0,
                       "on_bad_node": "exclude", "skip": []},
        "kill_switch": {"file": "control/kill", "grace": 900.0, "group": None, "signal": "SIGUSR2",
                        "save_signal": None},
        "preserve_site": {"for": 0.0, "when": ["unknown", "hang"], "nodes": "suspects"},
        "notify": {"to": [], "command": [], "when": ["gave_up", "hang", "suspect_node", "completed", "held"],
                   "smtp": None},
    }  # fmt: skip


def test_a_resolved_config_is_json_and_every_value_has_an_origin() -> None:
    got = resolved(DESIGN, SCRATCH="/s")
    leaves = {
        f"{key}.{name}" if isinstance(value, dict) else key
        for key, value in got.config.items()
        for name in (value if isinstance(value, dict) else [""])
    }
    assert leaves == set(got.origins)
    assert json.loads(json.dumps(got.config)) == got.config

BY_NAME = "torchrun, accelerate, deepspeed, ft_launcher, custom, srun, mpi, jax, ray, none or script"


def test_every_problem_is_shown_at_once_in_the_order_of_its_place() -> None:
    text = """\
slurmm: {nodes: 4}
name: ${NOBODY}
slurm:
  nodes: four
  gpus_per_node: 8
  gpus-per-node: 4
  time: 20h
  wrap: sleep 1
launch: {with: slurm, tee: 4}
slow: {tolerance: 5%, then: restart}
env: {1X: a, UID: 0}
"""
    assert problems(text, "slurm.nodess=4") == [
        'train.yaml: command: missing; it says what to train with, such as command: python train.py',
        'train.yaml:1:1: slurmm: unknown key; did you mean "slurm"?',
        "train.yaml:2:7: name: ${NOBODY} is not set: no config key, no variable; ${NOBODY:-x} gives it a default",
        'train.yaml:4:10: slurm.nodes: expected an integer ≥ 1, got "four"',
        "train.yaml:6:3: slurm.gpus-per-node: given twice, the first time in line 5",
        "train.yaml:7:9: slurm.time: expected a time as sbatch takes it, such as 20:00:00, 1-12:00:00 or minutes, "
        'got "20h"',
        "train.yaml:8:3: slurm.wrap: use command:",
        f'train.yaml:9:16: launch.with: expected {BY_NAME}, or a plugin: no plugin "slurm" is installed (safelaunch '
        "plugins)",
        "train.yaml:9:28: launch.tee: expected an integer from 0 to 3, got 4",
        "train.yaml:10:29: slow.then: restart needs resume.dir: the run stops at a checkpoint",
        "train.yaml:11:11: env.1X: not a name that an environment variable can have",
        "train.yaml:11:19: env.UID: bash sets this variable itself, and does not hand yours to the training",
        'command line: slurm.nodess: unknown option; did you mean "nodes"? '
        '(if your Slurm is newer and has it, write "--nodess")',
    ]  # fmt: skip


@each(
    ("text", "said"),
    [
        ("comand: x", 'comand: unknown key; did you mean "command"?'),
        ("nodes: 4", 'nodes: unknown key; did you mean "slurm.nodes"?'),
        ("gpus-per-node: 4", 'gpus-per-node: unknown key; did you mean "slurm.gpus_per_node"?'),
        ("grace: 4", 'grace: unknown key; did you mean "kill_switch.grace"?'),
        ("kill-switch: {}", 'kill-switch: unknown key; did you mean "kill_switch"?'),
        ("restart: {backof: 3}", 'restart.backof: unknown key; did you mean "backoff"?'),
        ("progress: {zzz: 3}", "progress.zzz: unknown key; known here: loss, step, step_time"),
        ("zzzzz: 3", "zzzzz: unknown key"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_known_one(text: str, said: str) -> None:
    assert problems(f"{MINIMAL}{text}\n") == [f"train.yaml:2:{_column(text)}: {said}"]


def _column(text: str) -> int:
    return text.index("{") + 2 if "{" in text and not text.endswith("{}") else 1


WRONG = [
    ("version: 2", 'version: expected 1, got 2'),
    ("name: -x", "name: expected a name of letters"),
    ("name: a b", "name: expected a name of letters"),
    (f"name: {'x' * 65}", "name: expected a name of letters"),
    ("name: true", "at most 64, the first a letter or digit, got true"),
    ("cluster: kubernetes", 'cluster: expected auto, slurm or local, got "kubernetes"'),
    ("command: [python, train.py]", "command: expected one text, as you would type it in a shell, got a list"),
    ("command: 3", "command: expected text, as you would type it in a shell, got 3"),
    ('command: " "', "command: empty"),
    ('command: "a\\0b"', "command: holds a NUL character"),
    ("setup: {a: b}", "setup: expected text, as you would type it in a shell, got a mapping"),
    ("run_dir: $HOME/x", "run_dir: write ${HOME}, with braces"),
    ("run_dir: ~bob/x", "run_dir: expected ~/… or the full path"),
    ('run_dir: "a\\nb"', "run_dir: holds a character that a line of text cannot (U+000A)"),
    ('run_dir: ""', 'run_dir: expected a path, got ""'),
    ("run_dir: 'a\\b'", "run_dir: holds a backslash, which Slurm takes for its own"),
    ("env: [A]", "env: expected a section of keys, got a list"),
    ("env: {A: [b]}", "env.A: expected text, got a list"),
    ('env: {A: "\\0"}', "env.A: holds a NUL"),
    ("env: {A-B: c}", "env.A-B: not a name"),
    ("env: {PWD: /x}", "env.PWD: bash sets this variable itself"),
    ("env: {BASH_ARGV: x}", "env.BASH_ARGV: bash sets this variable itself"),
    ("env: {MASTER_PORT: 1}", "env.MASTER_PORT: safelaunch sets this variable"),
    ("env: {SAFELAUNCH_RUN_ID: 1}", "env.SAFELAUNCH_RUN_ID: safelaunch sets this variable"),
    ("slurm: 4", "slurm: expected a section of keys, got 4"),
    ("srun: {wait: 1.5}", "srun.wait: expected an integer ≥ 0, got 1.5"),
    ('srun: {wait: "60"}', 'srun.wait: expected an integer ≥ 0, got "60"'),
    ("srun: {wait: true}", "srun.wait: expected an integer ≥ 0, got true"),
    ("srun: {kill_on_bad_exit: 2}", "srun.kill_on_bad_exit: expected 0 or 1, got 2"),
    ("srun: {extra: --hint=x}", 'srun.extra: expected a list, such as [a, b], got "--hint=x"'),
    ("srun: {extra: [--output=x]}", "srun.extra: --output=x: safelaunch reads the ranks' output"),
    ("srun: {extra: [-N4]}", "srun.extra: -N4: safelaunch chooses the nodes"),
    ("launch: {with: mpirun}", f'launch.with: expected {BY_NAME}, or a plugin: no plugin "mpirun" is'),
    ("launch: {with: custom}", "launch.call: empty; its first word is the launcher's program"),
    ("launch: {with: custom, call: [python3, run.py]}", "launch.call: expected the launcher's own program first"),
    ("launch: {with: custom, call: [x, '{nodes}']}", "launch.call: {nodes}: only {args}, {nnodes}, {node_rank}"),
    ("launch: {with: srun, call: [x]}", "launch.call: needs launch.with: custom"),
    ("checks: {skip: [nhx]}", "or a plugin: no plugin"),
    ("notify: {to: ['plugin:pager']}", 'notify.to: no plugin "pager" is installed'),
    ("srun: {extra: [--outp=x]}", "srun.extra: --outp=x: safelaunch reads the ranks' output"),
    ("launch: {nproc_per_node: 0}", "launch.nproc_per_node: expected an integer ≥ 1, got 0"),
    ("launch: {with: accelerate, args: [--num_machines, 2]}", "launch.args: --num_machines: safelaunch sets it"),
    ("launch: {with: torchrun, args: [--nnode=3]}", "launch.args: --nnode=3: safelaunch sets it"),
    ("launch: {with: torchrun, args: [-t1]}", "launch.args: -t1: safelaunch sets it"),
    ('launch: {with: torchrun, args: ["", x]}', "launch.args: expected text"),
    ("launch: {with: torchrun, torchrun: direct, args: [--max_restarts, 3]}",
     "launch.args: --max_restarts: is for torchrun's agent; leave it out, or launch.torchrun: agent"),
    ("launch: {with: torchrun, torchrun: direct, tee: 1}", "launch.tee: other than 3 is for torchrun's agent"),
    ("launch: {with: accelerate, torchrun: direct}", "launch.torchrun: direct needs launch.with: torchrun"),
    ("launch: {with: torchrun, torchrun: direct}\ncontainer: {runtime: apptainer, image: /i.sif}",
     "launch.torchrun: direct does not start ranks in a container yet; use agent"),
    ("launch: {with: srun, args: [--x]}", "launch.args: has no meaning with launch.with: srun"),
    ("launch: {with: srun, nproc_per_node: 8}", "launch.nproc_per_node: has no meaning with launch.with: srun"),
    ("resume: {args: --load {path}}", "not YAML"),
    ('resume: {dir: c, args: "{file}"}', "resume.args: {file}: only {path} and {step}"),
    ("""resume: {dir: c, args: "a 'b"}""", "resume.args: bash could not split it: no closing quotation"),
    ("resume: {args: x}", "resume.args: needs resume.dir"),
    ("resume: {dir: c, by: training, format: pattern}", "resume.format: needs resume.pattern"),
    ("resume: {dir: c, by: training, pattern: 's{step}'}", "resume.pattern: needs resume.format: pattern"),
    ("resume: {dir: c, by: training, format: pattern, pattern: s}",
     "resume.pattern: expected a path pattern with {step}"),
    ("progress: {step: '('}", "progress.step: not a regular expression"),
    ("progress: {step: abc}", "progress.step: expected exactly one group"),
    ("restart: {max_restarts: -1}", "restart.max_restarts: expected an integer ≥ 0, got -1"),
    ("restart: {max_restarts: 99999999999}", "restart.max_restarts: expected an integer ≥ 0, got 99999999999"),
    ("restart: {max_without_progress: 0}", "restart.max_without_progress: expected an integer ≥ 1, got 0"),
    ("restart: {backoff: 1:00}", "restart.backoff: expected a duration such as 90s"),
    ("restart: {via: magic}", 'restart.via: expected auto, successor, resubmit, requeue or watch, got "magic"'),
    ("restart: {policy: {magic: stop}}", "restart.policy: magic: no such category; known: storage, "),
    ("restart: {policy: {network: perhaps}}", "restart.policy: network: expected restart, exclude, "),
    ("standby: perhaps", 'standby: expected true or false, got "perhaps"'),
    ("suspects: {max_excluded: 110%}", "suspects.max_excluded: expected a share such as 10%"),
    ("kill_switch: {signal: KILL}", "kill_switch.signal: expected SIGUSR1, SIGUSR2"),
    ("kill_switch: {save_signal: SIGUSR2}", "kill_switch.save_signal: must differ from kill_switch.signal"),
    ("resume: {step: 3}", "resume.step: needs resume.dir"),
    ("resume: {dir: c, by: training, step: 3}", "resume.step: needs resume.by: command"),
    ("kill_switch: {group: 'a b'}", "kill_switch.group: expected the name of a group"),
    ("preserve_site: {when: unknown}", "preserve_site.when: expected a list"),
    ("preserve_site: {when: [sometimes]}", "preserve_site.when: expected storage, "),
    ("preserve_site: {nodes: some}", 'preserve_site.nodes: expected suspects or all, got "some"'),
]  # fmt: skip


@each(("text", "said"), WRONG)
def test_a_wrong_value_is_one_problem_in_plain_words(text: str, said: str) -> None:
    found = problems(text if text.startswith("command") else f"{MINIMAL}{text}\n")
    assert len(found) == 1
    assert said in found[0]
    assert found[0].startswith(f"train.yaml:{1 if text.startswith('command') else 2}:")


WIDE = """\
command: train ${RESUME_ARGS}
slurm: {nodes: 16}
resume: {dir: c, args: "--load {path}"}
"""


@each(("text", "change", "said"), [
    ("min_nodes: 16", (), "4:12: min_nodes: must be below slurm.nodes, which is 16"),
    ("min_nodes: 0", (), "4:12: min_nodes: expected an integer ≥ 1, got 0"),
    ("min_nodes: 6\nnodes_multiple_of: 4", (), "4:12: min_nodes: 6 is no multiple of 4 (nodes_multiple_of)"),
    ("min_nodes: 6\nnodes_multiple_of: 6", (), "2:16: slurm.nodes: 16 is no multiple of 6 (nodes_multiple_of)"),
    ("before_resize: convert", (), "4:16: before_resize: needs min_nodes: with how few nodes the run may go on"),
    ("nodes_multiple_of: 4", (), "4:20: nodes_multiple_of: needs min_nodes"),
    ("restart: {wait_for_nodes: 1h}", (), "4:27: restart.wait_for_nodes: needs min_nodes"),
    ("min_nodes: 8\nbefore_resize: c", ('resume: {dir: c, args: "--load {path}"}', ""),
     "5:16: before_resize: needs resume.dir"),
    ("min_nodes: 8\nbefore_resize: c", ("dir: c,", "dir: c, by: training,"),
     "5:16: before_resize: needs resume.by: command"),
    ("min_nodes: 8\nlaunch: {with: script}", ("train $", "'#!/bin/sh'  # $"),
     "4:12: min_nodes: has no meaning with a script"),
    ("min_nodes: 8", ("nodes: 16", "nodes: 16, gpus: 8"), "2:26: slurm.gpus: 8 on 16 nodes is no even number"),
])
def test_what_makes_no_sense_of_fewer_nodes_is_refused_with_its_place(
    text: str, change: tuple[str, ...], said: str
) -> None:
    file = WIDE.replace(change[0], change[1]) if change else WIDE
    found = problems(f"{file}{text}\n")
    assert [line for line in found if line.startswith(f"train.yaml:{said}")] == found[-1:]


def test_fewer_nodes_with_all_that_belongs_to_them_are_a_config() -> None:
    got = config(f"{WIDE}min_nodes: 8\nnodes_multiple_of: 8\nbefore_resize: c\nrestart: {{wait_for_nodes: 0}}\n")
    assert (got["min_nodes"], got["before_resize"], got["restart"]["wait_for_nodes"]) == (8, "c", 0)


def test_warm_ranks_need_a_node_that_starts_them_itself() -> None:
    (found,) = problems(f"{MINIMAL}restart: {{warm: auto}}\n")
    assert "restart.warm: needs launch.torchrun: direct" in found
    direct = f"{MINIMAL}launch: {{with: torchrun, nproc_per_node: 2, torchrun: direct}}\nrestart: {{warm: auto}}\n"
    assert "MASTER_PORT" in problems(f"{direct}env: {{MASTER_PORT: '1'}}\n")[0]


wrong_of_other_keys = st.lists(
    st.sampled_from([row for row in WRONG if not row[0].startswith("command") and "YAML" not in row[1]]),
    unique_by=lambda row: row[0].partition(":")[0],
)


@given(wrong_of_other_keys)
def test_no_problem_hides_another(rows: list[tuple[str, str]]) -> None:
    text = MINIMAL + "".join(f"{text}\n" for text, _ in rows)
    found = problems(text) if rows else []
    assert len(found) == len(rows)
    assert all(said in one for (_, said), one in zip(rows, found, strict=True))


@each(
    ("text", "launch"),
    [
        ("", ("none", None)),
        ("slurm: {nodes: 2}", ("srun", None)),
        ("slurm: {gpus_per_node: 4}", ("srun", None)),
        ("slurm: {gres: 'gpu:a100:4'}", ("srun", None)),
        ("slurm: {gpus: 4}", ("srun", None)),
        ("launch: {nproc_per_node: 2}", ("torchrun", 2)),
        ("slurm: {gpus_per_node: 'a100:4'}\nlaunch: {with: torchrun}", ("torchrun", 4)),
        ("slurm: {gres: 'gpu:a100:4(S:0-1),nvme:1'}\nlaunch: {with: torchrun}", ("torchrun", 4)),
        ("slurm: {gpus: 8, nodes: 2}\nlaunch: {with: torchrun}", ("torchrun", 4)),
        ("launch: {with: torchrun}", ("torchrun", 1)),
        ("slurm: {nodes: 2}\nlaunch: {with: none}", ("none", None)),
    ],
)
def test_the_launcher_follows_from_what_is_asked_for_and_is_written_out(text: str, launch: object) -> None:
    got = config(f"{MINIMAL}{text}\n")["launch"]
    assert (got["with"], got["nproc_per_node"]) == launch


@each(("more", "signal"), [
    ("", "SIGTERM"), ("kill_switch: {grace: 1m}", "SIGTERM"), ("kill_switch: {signal: USR1}", "SIGUSR1")])
def test_jax_is_asked_to_end_by_its_own_notice_unless_a_signal_is_given(more: str, signal: str) -> None:
    assert config(f"{MINIMAL}launch: {{with: jax}}\n{more}\n")["kill_switch"]["signal"] == signal


@each(
    ("file", "name"),
    [
        ("train.yaml", "train"),
        ("/a/b.c/gpt 13b.yml", "gpt-13b"),
        ("../-x.yaml", "x"),
        ("a.b.yaml", "a.b"),
        ("日本.yaml", "run"),
        ("x" * 99, "x" * 64),
    ],
)
def test_a_run_without_a_name_is_named_after_its_file(file: str, name: str) -> None:
    assert resolve([ConfigLayer("file", file, MINIMAL)], [], {}).config["name"] == name


@each(
    ("written", "got"),
    [("/abs/x", "/abs/x"), ("rel/x", "/project/rel/x"), ("~/x", "/home/me/x"), ("${HOME}/x", "/home/me/x")],
)
def test_a_run_folder_is_absolute_and_starts_at_the_file(written: str, got: str) -> None:
    assert config(f"{MINIMAL}run_dir: {written}\n", HOME="/home/me")["run_dir"] == got


def test_a_checkpoint_folder_stays_relative_to_the_jobs_working_directory() -> None:
    assert config(f"{MINIMAL}resume: {{dir: ckpt, by: training}}\n")["resume"]["dir"] == "ckpt"


def test_a_home_folder_that_nobody_knows_is_a_problem() -> None:
    assert problems(f"{MINIMAL}run_dir: ~/x\n") == ["train.yaml:2:10: run_dir: ~ needs HOME in the environment"]


def test_variables_are_text_exactly_as_written() -> None:
    got = config(f"{MINIMAL}env: {{A: 1.10, B: true, C: on, D: '', E: 007, F: \"a\\nb\"}}\n")["env"]
    assert got == {"A": "1.10", "B": "true", "C": "on", "D": "", "E": "007", "F": "a\nb"}


def test_a_variable_in_an_environment_value_is_filled_in_at_submit() -> None:
    text = f'{MINIMAL}env: {{PATH: "/x:${{PATH}}"}}\n'
    assert config(text, PATH="/bin")["env"] == {"PATH": "/x:/bin"}


def test_a_number_from_a_variable_is_a_number() -> None:
    assert config(f"{MINIMAL}slurm:\n  nodes: ${{N}}\n", N="4")["slurm"]["nodes"] == 4


def test_a_signal_is_known_with_and_without_sig() -> None:
    assert config(f"{MINIMAL}kill_switch: {{signal: USR1}}\n")["kill_switch"]["signal"] == "SIGUSR1"


def test_a_variable_that_is_not_utf_8_is_refused_where_it_is_used() -> None:
    found = problems(f'{MINIMAL}env: {{A: "${{X}}"}}\nrun_dir: ${{X}}\n', X="\udcff")
    assert found == [
        "train.yaml:2:10: env.A: holds bytes that are not UTF-8",
        "train.yaml:3:10: run_dir: holds a character that a line of text cannot (U+DCFF); expected a path in one line",
    ]


TOO_LONG = "x" * (MAX_VALUE_BYTES + 1)


@each(
    ("text", "said"),
    [
        (f"command: {TOO_LONG}", "train.yaml:2:10: command: has 120001 bytes"),
        (f"setup: {'é' * 60_001}", "train.yaml:2:8: setup: has 120002 bytes"),
        (f"env: {{A: {TOO_LONG[:-2]}}}", "train.yaml:2:10: env.A: has 120001 bytes"),
        (f"slurm: {{comment: {TOO_LONG}}}", "train.yaml:2:18: slurm.comment: has 120001 bytes"),
        (f"slurm: {{exclude: [{TOO_LONG[:-3]}, ab]}}", "train.yaml:2:18: slurm.exclude: has 120001 bytes"),
        (f"srun: {{extra: [--comment={TOO_LONG[10:]}]}}", "train.yaml:2:15: srun.extra: has 120001 bytes"),
    ],
    ids=["command", "setup, in bytes", "env, with its name", "slurm", "slurm, joined", "srun.extra"],
)
def test_a_text_that_no_process_can_be_given_is_refused_in_its_place(text: str, said: str) -> None:
    found = problems(f"name: x\n{text}\n" if text.startswith("command") else f"{MINIMAL}{text}\n")
    assert len(found) == 1
    assert found[0].startswith(f"{said}, more than a process can be given (120000); put it into a file")


@each("name", sorted(BASHS_OWN))
def test_a_variable_that_bash_does_not_hand_on_is_refused(name: str) -> None:
    found = problems(f"{MINIMAL}env: {{{name}: x}}\n")
    said = "bash sets this variable itself, and does not hand yours to the training"
    assert found == [f"train.yaml:2:{9 + len(name)}: env.{name}: {said}"]


@each(
    ("folder", "said"),
    [
        ("/a\\b", "holds a backslash, which Slurm takes for its own in the name of an output file"),
        ("/a\nb", "holds the control character '\\n', which no #SBATCH line can"),
        ("/a\udcff", "holds bytes that are not UTF-8"),
    ],
    ids=["backslash", "newline", "not UTF-8"],
)
def test_a_folder_that_slurm_cannot_write_to_is_refused_wherever_its_name_comes_from(folder: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve([ConfigLayer("file", "train.yaml", MINIMAL)], [], {}, base_dir=folder)
    assert [str(problem) for problem in caught.value.problems] == [f"train.yaml: run_dir: {said}"]
    assert problems(f"{MINIMAL}run_dir: ~/x\n", HOME=folder) == [f"train.yaml:2:10: run_dir: {said}"]


def test_a_home_folder_in_another_encoding_is_refused_for_every_path() -> None:
    found = problems(f"{MINIMAL}resume: {{dir: ~/c}}\nkill_switch: {{file: ~/k}}\n", HOME="/\udcff")
    assert [problem.partition(": ")[2] for problem in found] == [
        "resume.dir: holds bytes that are not UTF-8", "kill_switch.file: holds bytes that are not UTF-8"]


def test_an_unreadable_file_is_only_its_own_problem() -> None:
    assert problems("command: [\n") == [
        "train.yaml:2:1: not YAML: a value is missing, or starts with a sign that needs quotes"
    ]


# (text after the command, whether the check takes it)
SAMPLES = [
    ("", True), ("version: 1", True), ("version: 2", False), ("version: '1'", False), ("name: a.b-c_d", True),
    ("name: a b", False), ("name: 12", True), ("name: true", False), ("cluster: local", True), ("cluster: k8s", False),
    ("setup: x", True), ("setup: [x]", False), ("setup: 3", False), ("env: {A: 1}", True), ("env: {A: true}", True),
    ("env: {A: [1]}", False), ("env: {1A: 1}", False), ("slurm: {nodes: 4}", True),
    ("slurm: {gpus_per_node: a:4}", True),
    ("slurm: {gpus-per-node: 4}", True),
    ("slurm: {exclusive: true}", True), ("slurm: {exclude: [a, b]}", True),
    ("slurm: {wrap: x}", False), ("slurm: {job_name: x}", False), ("slurm: {nodes: {a: 1}}", False),
    ("slurm: {constraint: [a]}", False), ("slurm: {new-one-of-28.05: 1}", False), ("slurm: {brandnew: 1}", True),
    ("srun: {wait: 0}", True), ("srun: {wait: -1}", False), ("srun: {wait: '1'}", False), ("srun: {wait: 1.0}", False),
    ("srun: {kill_on_bad_exit: true}", True), ("srun: {kill_on_bad_exit: 3}", False), ("srun: {extra: []}", True),
    ("srun: {extra: [--x]}", True), ("srun: {extra: --x}", False), ("launch: {with: torchrun}", True),
    ("launch: {with: mpirun}", False), ("launch: {tee: 4}", False), ("launch: {nproc_per_node: 4}", True),
    ("resume: {dir: x, format: dcp, by: training}", True), ("resume: {dir: x, format: zip, by: training}", False),
    ("resume: {by: me}", False), ("restart: {on_lost_progress: warn}", True),
    ("restart: {on_lost_progress: no}", False), ("restart: {warm: yes}", False),
    ("launch: {with: torchrun, torchrun: direct}\nrestart: {warm: true}", True),
    ("slow: {tolerance: 2.5%, then: report}", True), ("slow: {tolerance: 0%}", False), ("slow: {tolerance: 5}", False),
    ("slow: {tolerance: 0.5%}", False), ("slow: {tolerance: 100%}", False), ("slow: {then: nothing}", False),
    ("slow: {then: exclude_next}", True), ("on_nan: report", True), ("on_nan: stop", True), ("on_nan: restart", False),
    ("resume: {keep_trying: 0}", True), ("standby: 1", False), ("hang: {no_progress: 10m}", True),
    ("hang: {no_progress: soon}", False), ("hang: {no_progress: auto, then: notify}", True), ("standby: false", True),
    ("suspects: {max_excluded: 3}", True), ("suspects: {max_excluded: -3}", False),
    ("restart: {policy: {hang: restart 3}}", True), ("restart: {policy: {hang: restart three}}", False),
    ("restart: {policy: {hang: null}}", True), ("restart: {policy: {hang: '${A}', magic: stop}}", False),
    ("progress: {step: auto}", True), ("progress: {loss: auto}", True), ("restart: {backoff: 15m}", True),
    ("restart: {backoff: 15}", True), ("restart: {backoff: 1.5}", True), ("restart: {backoff: '15:00'}", False),
    ("restart: {backoff: -1}", False), ("restart: {backoff: 400d}", False), ("restart: {via: requeue}", True),
    ("kill_switch: {signal: USR1}", True), ("kill_switch: {signal: SIGKILL}", False), ("kill_switch: {group: a}", True),
    ("kill_switch: {group: a b}", False), ("preserve_site: {when: [hang]}", True),
    ("preserve_site: {when: hang}", False),
    ("preserve_site: {when: [x]}", False), ("preserve_site: {for: 2h, nodes: all}", True), ("hang: {}", True),
    ("checks: {}", True), ("checks: {boot: true, skip: [nhc]}", True), ("checks: {skip: [x]}", False),
    ("unknown: 1", False), ("restart: {max_restarts: null}", True), ("restart: null", True),
    ("cluster: ${A}", True), ("restart: {max_restarts: null, backof: 1}", False), ("restart: 3", False),
]  # fmt: skip
# What only the check knows to be wrong: to JSON 1.0 is the integer 1, and a plugin may have any name.
BEYOND_SCHEMA = {"launch: {with: mpirun}", "resume: {dir: x, format: zip, by: training}", "checks: {skip: [x]}",
                 "restart: {backoff: 400d}", "slurm: {new-one-of-28.05: 1}", "srun: {wait: 1.0}"}


@each(("text", "is_good"), SAMPLES)
def test_the_check_and_the_schema_agree(text: str, is_good: bool) -> None:
    tree, _ = parse_document(f"{MINIMAL}{text}\n", layer="file", file="t")
    assert tree is not None
    assert accepts(train_schema(), plain(tree)) == (is_good or text in BEYOND_SCHEMA)
    try:
        resolved(f"{MINIMAL}{text}\n", A="local")
        by_check = True
    except ConfigError:
        by_check = False
    assert by_check == is_good


@given(st.binary(max_size=80))
def test_no_file_makes_the_check_do_anything_but_resolve_or_refuse(data: bytes) -> None:
    _resolve_or_refuse(data.decode("utf-8", "surrogateescape"))


lines = st.sampled_from([
    "command: x", "name: ${name}", "slurm: {nodes: ${N}}", "slurm:", "  nodes: 4", "  time: 1:2:3", "env: {A: b}",
    "restart:", "  backoff: 5m", "run_dir: ${slurm.nodes}/${A:-b}", "launch: {with: torchrun}", "setup: |", "    code",
    "- x", "<<: *a", "a: &a [1]", "\tx: y", "resume: {dir: '~'}", "kill_switch: null", "preserve_site: {when: []}",
    "srun: []",
])  # fmt: skip
overrides = st.sampled_from([
    "slurm.nodes=4", "slurm=", "=", "a.b.c=1", "env.A=[", "restart=3", "command={a: b}", "slurm.--new=1", "x", "a..b=1",
])  # fmt: skip
sbatch_flags = st.sampled_from(
    ["--qos=high", "--qos", "-p", "-N4", "-HO", "--", "-", "", "--nodes=x", "--wrap=x", "-Zz", "--=1"]
)


@given(st.lists(lines, max_size=8), st.lists(overrides, max_size=3), st.lists(sbatch_flags, max_size=4))
def test_no_command_line_makes_the_check_do_anything_but_resolve_or_refuse(
    text: list[str], words: list[str], flags: list[str]
) -> None:
    _resolve_or_refuse("\n".join(text), *words, flags=tuple(flags))


@pytest.mark.parametrize("beside", [
    "", *(f"launch.with={name}" for name in LAUNCHERS), "container={runtime: apptainer, image: a.sif}", "min_nodes=1",
    "sweep={env.A: [1, 2]}"])
def test_a_wrong_value_of_any_key_is_refused_whatever_stands_beside_it(beside: str) -> None:
    others = [beside] if beside else []
    for key in (*KEYS, *dict.fromkeys(key.rpartition(".")[0] or "env" for key in KEYS)):
        for value in ("{a: b}", "[[1]]", "null", '""', "[]", "[null]", '"*"', "7"):
            _resolve_or_refuse(MINIMAL, *others, f"{key}={value}")


def _resolve_or_refuse(text: str, *overrides: str, flags: tuple[str, ...] = ()) -> None:
    try:
        json.dumps(config(text, *overrides, flags=flags))
    except ConfigError as error:
        assert error.problems


BLOCKS = "# >>> directives\n# <<< directives\n# >>> values\n# <<< values\n"


@settings(deadline=None)   # how long it takes says nothing on a busy machine
@given(st.text(st.characters(), max_size=40), st.sampled_from(
    ["command", "setup", "env.A", "run_dir", "kill_switch.file", "slurm.comment", "resume.dir", "name", "slurm.gres"]))
def test_what_the_check_takes_the_script_can_hold(word: str, key: str) -> None:
    try:
        got = resolve([ConfigLayer("file", "train.yaml", MINIMAL)], [f"{key}={word}", "resume.by=training"],
                      {"HOME": "/h"},
                      base_dir="/project")
    except ConfigError:
        return
    assert render(BLOCKS, of_config(got.config, "1a2b3c4d"), python="/p", library=()).encode()


def test_what_goes_back_to_a_checkpoint_needs_to_know_where_they_are_unless_a_site_wants_it() -> None:
    wish = "slow: {then: restart}\non_nan: previous_checkpoint\n"
    told = problems(f"name: a\ncommand: c\n{wish}")
    assert [text.partition(": ")[2].split(" needs")[0] for text in told] == [
        "slow.then: restart", "on_nan: previous_checkpoint"]
    train = "name: a\ncommand: c $SAFELAUNCH_RESUME_PATH\nresume: {dir: ckpt}\n"
    plan = of_config(resolve([ConfigLayer("file", "train.yaml", train + wish)], [], {}).config, "r1")
    assert (plan.slow.then, plan.on_nan) == ("restart", "previous_checkpoint")
    of_site = [ConfigLayer("site", "site.yaml", wish), ConfigLayer("file", "train.yaml", "name: a\ncommand: c\n")]
    plan = of_config(resolve(of_site, [], {}).config, "r1")
    assert (plan.slow.then, plan.resume.dir) == ("restart", None)

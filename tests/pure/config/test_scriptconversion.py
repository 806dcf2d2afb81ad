"""Scripts as people have them ▸ train.yaml: converted where that is safe, else around the script, else refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.config.io.bashtext import syntax_fault
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.config.sbatchscript import draft_from_script
from safelaunch.config.shell.shelllines import Unclosed, split_statements
from safelaunch.config.starter import Draft, render_draft
from safelaunch.errors import ConfigError
from tests.tables import each

SCRIPTS = Path(__file__).parent / "jobscripts"


class Row(NamedTuple):
    """A script, what becomes of it, and what must be said of which line; of a converted one what it trains with."""

    name: str
    result: str
    said: dict[int, str]
    command: str = ""


TABLE = (
    Row("torchrun_srun", "torchrun", {17: "safelaunch sets it", 21: "only prints", 22: "--rdzv_endpoint"},
        "python -u train.py --config configs/small.yaml --lr 3e-4 ${RESUME_ARGS}"),
    Row("torchrun_alias_counts", "torchrun", {6: "list of nodes", 7: "--nnodes ${NNODES}"},
        "python -u -m project.train --steps 1000 ${RESUME_ARGS}"),
    Row("torchrun_standalone_tee", "torchrun", {7: "tee run.log"},
        "python -u train_ddp.py --batch-size 64 ${RESUME_ARGS}"),
    Row("single_gpu_log", "none", {10: "> train.log 2>&1"},
        "python -u finetune.py --model small --epochs 3 ${RESUME_ARGS}"),
    Row("lightning_srun", "srun", {7: "kill_switch.signal"}, "python3 fit.py --data /data/imagenet ${RESUME_ARGS}"),
    Row("jax_srun", "srun", {10: "--unbuffered"}, "python -m maxlm.train base.yml steps=5000 ${RESUME_ARGS}"),
    Row("srun_binding", "srun", {11: "RESUME_ARGS"}, "python train.py --amp ${RESUME_ARGS}"),
    Row("megatron_pyxis", "srun", {7: "flags of srun left out"},
        "python pretrain_gpt.py --tensor-model-parallel-size 8 --save /lustre/ckpt --load /lustre/ckpt ${RESUME_ARGS}"),
    Row("lightning_argument", "wrapped", {3: "an argument of the script", 4: "an argument of the script"}),
    Row("accelerate_multinode", "wrapped", {23: "which program $CMD starts"}),
    Row("accelerate_bash_c", "wrapped", {8: "a script of its own in quotes"}),
    Row("deepspeed_hostfile", "wrapped", {7: "a loop", 10: "no node guard ends them"}),
    Row("megatron_container_variables", "wrapped", {10: "leave --output out"}),
    Row("megatron_quoted_wrapper", "wrapped", {5: "bash -c"}),
    Row("nemo_here_document", "wrapped", {5: "a here-document"}),
    Row("torchtitan_head_ip", "wrapped", {9: "differ from node to node", 12: "dcgmi would run on every node"}),
    Row("axolotl_two_steps", "wrapped", {6: "a secret in the script", 8: "a second command"}),
    Row("jax_job_id_name", "wrapped", {3: "after the next job of the run it is a new one", 4: "a branch"}),
    Row("ray_head_workers", "wrapped", {12: "a loop", 15: "a second command"}),
    Row("several_srun", "wrapped", {6: "a second command", 7: "a second command"}),
    Row("apptainer_here_document", "wrapped", {3: "a here-document", 7: "chmod would run"}),
    Row("node_range", "wrapped", {2: "2-4 became 2", 3: "a loop"}),
    Row("tasks_only", "wrapped", {2: "nodes: 1 is a guess", 3: "more than one command"}),
    Row("date_in_folder", "wrapped", {3: "SAFELAUNCH_RUN_ID"}),
    Row("trap_only", "wrapped", {3: "--signal", 5: "background"}),
    Row("nohup_log", "wrapped", {4: "leave the redirection out"}),
    Row("python_script", "wrapped", {1: "written for python3"}),
    Row("hundred_lines", "wrapped", {8: "a function", 9: "a here-document"}),
    Row("nanotron_array", "torchrun", {5: "a chain of jobs is one run"},
        "python -u run_train.py --config-file tiny.yaml ${RESUME_ARGS}"),
    Row("array_sweep", "wrapped", {3: "a sweep of 8 runs"}),
    Row("nanotron_requeue_chain", "wrapped", {6: "submits itself"}),
    Row("requeue_trap", "wrapped", {6: "scontrol requeue"}),
    Row("hetjob", "refused", {4: "submit it with sbatch", 6: "heterogeneous"}),
    Row("srun_by_path", "refused", {3: "write srun alone"}),
    Row("export_none", "refused", {3: "-- --export=ALL"}),
    Row("unclosed_quote", "refused", {4: 'the quote " has no end'}),
    Row("unclosed_directive", "refused", {3: "has no end"}),
    Row("dos_lines", "refused", {1: "dos2unix"}),
    Row("no_shebang", "refused", {1: "write #!/bin/bash"}),
)


def draft_of(text: str, file: str = "job.slurm") -> Draft:
    return draft_from_script(text, file, "", syntax_fault(text))


def config_of(draft: Draft, text: str) -> dict[str, Any]:
    """What `check` makes of the draft; the script stands in a layer below, as config.io.configfiles reads it."""
    below = [ConfigLayer("file", draft.script, text)] if draft.script else []
    return resolve([*below, ConfigLayer("file", "train.yaml", render_draft(draft))], [], {"HOME": "/h"}).config


@each("row", TABLE, called=lambda row: row.name)
def test_each_script_is_converted_wrapped_or_refused_as_the_table_says(row: Row) -> None:
    file = f"{row.name}.slurm"
    text = (SCRIPTS / file).read_bytes().decode()
    result, config = "refused", None
    try:
        draft = draft_of(text, file)
    except ConfigError as error:
        said = [str(problem) for problem in error.problems]
    else:
        config = config_of(draft, text)
        result = "wrapped" if draft.script else config["launch"]["with"]
        said = list(draft.notes)
    assert result == row.result, said
    for line, words in row.said.items():
        assert any(re.match(rf"{file}:{line}:", note) and words in note for note in said), (line, words, said)
    if config is not None:
        assert config["command"] == (row.command or text)
        assert config["launch"]["with"] == ("script" if result == "wrapped" else row.result)


def test_no_script_is_left_out_of_the_table() -> None:
    assert {row.name for row in TABLE} == {path.stem for path in SCRIPTS.iterdir()}


def test_what_srun_binds_goes_to_srun_extra_and_the_signal_to_the_kill_switch() -> None:
    binding, lightning = ((SCRIPTS / f"{name}.slurm").read_text() for name in ("srun_binding", "lightning_srun"))
    assert config_of(draft_of(binding), binding)["srun"]["extra"] == ["--cpu-bind=cores", "--gpu-bind=closest"]
    config = config_of(draft_of(lightning), lightning)
    assert config["kill_switch"]["signal"] == "SIGUSR1" and config["launch"]["login_shell"]


HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4\n"
UNSAFE = {
    "module load cuda && echo ok": "a condition", "export A=$(hostname)": "differ", "export A=$(date)": "differ",
    "pip install -e .": "every node at once", "rm -rf out": "every node at once", "export P=$((1 + RANDOM))": "differ",
    "export P=$$": "differ", "source env.sh > here": "file", "echo x > f": "writes a file", "sleep 10 &": "background",
    "function f { :; }": "function", "[[ -d x ]] || exit": "branch", "scontrol show job": "every node at once",
    "env A=1 ./prepare.sh": "more than print", "printf -v RUN x": "more than print", "date -s now": "more than print",
    'echo "$(python prep.py)"': "more than print", "nvidia-smi -pm 1": "more than print",
    "hostname n7": "more than print", "conda run -n e python prep.py": "every node at once",
    "conda env create -f e.yml": "every node at once", "spack install x": "every node at once",
    "export HEAD=$HOSTNAME": "differ", "HEAD=$SLURMD_NODENAME": "differ", "export A=$SLURM_NODEID": "differ",
    "export ID=$(cat /proc/sys/kernel/random/uuid)": "differ",
}


@each(("line", "why"), UNSAFE.items())
def test_a_line_that_may_not_run_on_every_node_keeps_the_script_as_it_is(line: str, why: str) -> None:
    draft = draft_of(f"{HEAD}{line}\nsrun torchrun --nproc_per_node=4 train.py\n")
    assert draft.script and any(note.startswith("job.slurm:3:") and why in note for note in draft.notes), draft.notes


@each("launch", (
    "srun torchrun --nnodes=3 --nproc_per_node=4 t.py", "srun torchrun --nnodes 1:2 --nproc_per_node=4 t.py",
    "srun torchrun --nproc_per_node=$N t.py", "srun -n 4 python t.py", "srun --het-step x python t.py", "python t.py",
    "torchrun --nproc_per_node=4 t.py", "srun torchrun --log-dir x t.py", "srun accelerate launch t.py", "srun $CMD",
    "srun python t.py; srun python u.py", "srun python t.py \"$@\"", "A=1 srun python t.py", "srun",
    "srun python t.py &",
    "srun --cpu-bind=$MASK python t.py", "srun python t.py < in", "srun torchrun launch t.py",
    "srun python t.py --url tcp://$HOSTNAME:1", "srun python t.py --rank $SLURM_PROCID", "srun -ln8 python t.py",
    "srun bash -lc 'python t.py'", r"srun python t.py --s $'it\'s  x'",
))
def test_a_start_that_is_not_seen_through_keeps_the_script_as_it_is(launch: str) -> None:
    draft = draft_of(f"{HEAD}{launch}\n")
    assert draft.script and any(note.startswith("job.slurm:3: ") for note in draft.notes), draft.notes


@each("after", ("wait && cp -r out /archive", "exit 0 || cp a b", "conda deactivate && python eval.py"))
def test_work_behind_the_training_keeps_the_script_as_it_is(after: str) -> None:
    draft = draft_of(f"{HEAD}srun torchrun --nproc_per_node=4 train.py\n{after}\n")
    assert draft.script and any(note.startswith("job.slurm:4: ") for note in draft.notes), draft.notes


@each("lines", ("N=2\nN=$((N * 2))", "N=1\nN+=2", "N=4\nexport A=1 N=2"))
def test_a_number_that_is_given_twice_is_not_guessed(lines: str) -> None:
    assert draft_of(f"{HEAD}{lines}\nsrun torchrun --nproc_per_node=$N train.py\n").script


@each("line", ("ARGS+=' --wd 2'", "ARGS+=(--wd 2)", "export PATH+=:/opt/x", "A[0]=x"))
def test_what_is_put_behind_a_variable_is_kept(line: str) -> None:
    draft = draft_of(f"{HEAD}{line}\nsrun torchrun --nproc_per_node=4 train.py\n")
    assert draft.setup == line, draft.notes


@each(("typed", "command"), (
    ("--name=abc\\\ndef", "--name=abcdef"), ('--p "a\\\n   b"', '--p "a   b"'), ("--p 'a | tee b'", "--p 'a | tee b'"),
    ('--p "a   b" > log 2>&1', '--p "a   b"'), ("--p \\\n    b 2>&1 | tee log", "--p b"),
))
def test_the_words_of_the_training_stay_as_bash_reads_them(typed: str, command: str) -> None:
    assert draft_of(f"{HEAD}srun python t.py {typed}\n").command == f"python t.py {command} ${{RESUME_ARGS}}"


@each(("text", "statements"), [
    ("a 'b;c' \"d;e\"; f # g;\n", ["a 'b;c' \"d;e\"", "f"]), ("a \\\n  b\nc", ["a b", "c"]),
    ("x=$(a \"b c\" # ) it's\n d)\ne", ["x=$(a \"b c\" # ) it's\n d)", "e"]),
    ("cat <<'E'\nit's\nE\nb", ["cat <<'E'", "b"]),
    ("a <<-E\n\tdon't\n\tE\nb <<< 'c'", ["a <<-E", "b <<< 'c'"]), ("a 2>&1 && b &\nc", ["a 2>&1 && b", "c"]),
    ("echo \"it's $(b \"c\")\" ${d#'}'}\ne", ["echo \"it's $(b \"c\")\" ${d#'}'}", "e"]),
    ("a#b $# ${#c}", ["a#b $# ${#c}"]),
])
def test_statements_are_told_apart_as_bash_tells_them(text: str, statements: list[str]) -> None:
    assert [one.text for one in split_statements(text)] == statements


@each(("text", "line"), [
    ("a\nb 'c\nd", 2), ('a\n\nx="$(b', 3), ("a=${b\nc", 1), ("a <<'E'\n'\nE\n\"", 4),
])
def test_an_open_quote_is_named_by_the_line_where_it_opens(text: str, line: int) -> None:
    with pytest.raises(Unclosed) as fault:
        split_statements(text)
    assert fault.value.number == line


pieces = st.sampled_from([
    "#SBATCH ", "--nodes=2", "-N", "--job-name='a b'", "--qos=\"x", "--output=x", "--time=1h", "\n", " ", "srun ",
    "torchrun ", "--nproc_per_node 2 ", "python a.py", "'", '"', "\\\n", "${X}", ": ", "# ", "\t", "é", "if x; then",
    "\x07", "$(", ")", "<<E\n", "E\n", "&", "| tee x", "> y", "export A=1\n", "module load x\n", "--cpu-bind=none ",
])  # fmt: skip


@given(st.lists(pieces, max_size=15).map("".join))
def test_whatever_is_written_passes_the_check(script: str) -> None:
    text = f"#!/bin/bash\n{script}"
    try:
        draft = draft_from_script(text, "job.slurm")
    except ConfigError:
        return
    config_of(draft, text)

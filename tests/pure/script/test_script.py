"""The job script's text. The golden scripts are what submit sends: read them when they change, and write them anew with

    SAFELAUNCH_GOLDEN=write pytest tests/pure/script/test_script.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from safelaunch.config.handed import MAX_VALUE_BYTES
from safelaunch.config.resolve import ConfigLayer, resolve
from safelaunch.errors import TemplateError
from safelaunch.run.plan import Plan, of_settings
from safelaunch.script import scriptparts
from safelaunch.script.script import (
    directives,
    first_job_options,
    quote_bash,
    quote_directive,
    render,
    time_limit_s,
    warn_before_s,
)
from tests.tables import each

HERE = Path(__file__).parent
SLURM = HERE.parents[2] / "templates" / "slurm"
TEMPLATE = {name: (SLURM / f"{name}.sh").read_text() for name in scriptparts.ALL}

TORCHRUN = """\
name: bloom
run_dir: /scratch/abc/runs/bloom
cluster: slurm
command: python -u pretrain.py --config conf.yaml ${RESUME_ARGS}
slurm: {account: abc@h100, partition: gpu, nodes: 16, gpus_per_node: 8, cpus_per_task: 96, time: "20:00:00"}
launch: {with: torchrun}
"""
SRUN = """\
name: gpt
run_dir: /scratch/abc/runs/gpt
cluster: slurm
command: python -u train.py
slurm: {nodes: 4, gpus_per_node: 8, cpus_per_task: 12, time: 1-00:00:00}
srun: {wait: 30, extra: [--hint=nomultithread, --cpu-bind=verbose]}
"""
MINIMAL = """\
name: minimal
run_dir: /home/ann/runs/minimal
cluster: slurm
command: python train.py
"""
EVERYTHING = """\
name: mini
run_dir: /scratch/it's 100% mine/runs/mini
cluster: slurm
command: |
  cd "$HOME/code" &&
  python -u train.py --name 'a b' ${RESUME_ARGS}
setup: |
  module load cuda/12.4
  source venv/bin/activate
env: {NCCL_DEBUG: WARN, GREETING: "it's $HOME; `id`", NODES: "7", PATH: "/opt/own/bin:/usr/bin"}
slurm:
  nodes: 2
  gres: gpu:a100:4
  exclude: "gpu[012,035]"
  comment: 'for "Ann" \\ #1'
  mail_user: ann@example.org
  exclusive: true
  begin: now+1hour
  time: "04:00:00"
kill_switch: {file: /scratch/stop files/mini, grace: 5m}
preserve_site: {for: 10000s}
"""
LOCAL = """\
name: here
run_dir: /home/ann/runs/here
cluster: local
command: python train.py
slurm: {nodes: 2}
launch: {nproc_per_node: 2}
"""
GOLDEN = {"torchrun-16x8": TORCHRUN, "srun": SRUN, "minimal": MINIMAL, "everything": EVERYTHING, "local": LOCAL}


def plan_of(yaml: str, *overrides: str) -> Plan:
    asked = resolve([ConfigLayer("file", "train.yaml", yaml)], overrides, {"HOME": "/home/ann"}).settings
    return of_settings(asked, "1a2b3c4d")


def rendered(plan: Plan, template: str | dict[str, str] = TEMPLATE) -> str:
    srun = ("/opt/venv/bin/python", "-I", "/opt/venv/localrun.py") if plan.cluster == "local" else ("srun",)
    library = ("/opt/venv/safelaunch",)
    return render(template, plan, python="/opt/venv/bin/python", library=library, srun=srun,
                  is_complete=lambda text: True)


def values(script: str) -> str:
    return script.partition("# >>> values")[2].partition("# <<< values")[0]


def lines_of(plan: Plan) -> list[str]:
    return [line.removeprefix("#SBATCH --") for line in directives(plan)]


@each("name", GOLDEN)
def test_the_script_is_the_golden_one(name: str) -> None:
    script, golden = rendered(plan_of(GOLDEN[name])), HERE / "golden" / f"{name}.sbatch"
    if os.environ.get("SAFELAUNCH_GOLDEN") == "write":
        golden.write_text(script)
    assert script == golden.read_text(), "see the top of this file"


def test_there_is_no_golden_script_without_a_case() -> None:
    assert {path.stem for path in (HERE / "golden").iterdir()} == set(GOLDEN)


@each("name", GOLDEN)
def test_the_body_is_the_templates_own(name: str) -> None:
    plan = plan_of(GOLDEN[name])
    body = scriptparts.join(TEMPLATE, plan).partition("# <<< values")[2]
    assert rendered(plan).partition("# <<< values")[2] == body and body.startswith("\nset -o pipefail\n")


@each("name", ["minimal", "srun", "torchrun-16x8", "a script of a user's own"])
def test_a_person_can_read_it(name: str) -> None:
    plan = plan_of(GOLDEN.get(name, MINIMAL))
    own = plan._replace(launch=plan.launch._replace(by="script"))
    whole = rendered(plan if name in GOLDEN else own).splitlines()
    upper = next(number for number, line in enumerate(whole) if line.startswith("# ======== The supervision"))
    assert len(whole) <= 400 and upper <= 120


FILES = [*SLURM.rglob("*.sh"), *(HERE.parents[2] / "src" / "safelaunch").glob("*/*.sh")]


@each("path", FILES, ids=lambda path: path.stem)
def test_no_function_of_it_is_long_and_none_of_it_is_a_program_in_quotes(path: Path) -> None:
    lines, began = path.read_text().splitlines(), 0
    for number, line in enumerate(lines):
        if re.match(r"\w+\(\) \{", line):
            began = number
        elif line in ("}", "} 2>/dev/null"):
            assert number - began <= 40, lines[began]
    assert not re.search(r"^ *(?:python3?|\S*PYTHON\S*) -c '[^']*\n", path.read_text(), re.MULTILINE)
    assert not re.search(r"(?:bash|eval)(?: -c)? '[^']*\n", path.read_text())


def test_each_fragment_is_of_a_script() -> None:
    assert {str(path.relative_to(SLURM).with_suffix("")) for path in SLURM.rglob("*.sh")} == set(scriptparts.ALL)


@each("name", GOLDEN)
def test_a_script_has_the_values_that_it_reads_and_no_others(name: str) -> None:
    script = rendered(plan_of(GOLDEN[name]))
    body = script.partition("# <<< values")[2]
    given = re.findall(r"^(SL_\w+)=", values(script), re.MULTILINE)
    assert [one for one in given if one not in re.findall(r"SL_\w+", body)] == []


@each(("by", "files"), [
    ("script", ("node/script.sh", "node/srun.sh", "node/guarded.sh", "supervisor/births.sh")),
    ("torchrun", ("node/command.sh", "node/guarded.sh", "supervisor/births.sh")),
    ("none", ("node/command.sh", "node/guarded.sh", "supervisor/births.sh"))])
def test_a_script_has_the_values_that_files_of_the_library_read(by: str, files: tuple[str, ...]) -> None:
    plan = plan_of(MINIMAL)
    given = re.findall(r"^(SL_\w+)=", values(rendered(plan._replace(launch=plan.launch._replace(by=by)))), re.MULTILINE)
    blank = "# >>> directives\n# <<< directives\n# >>> values\n# <<< values\n"
    every = re.findall(r"^(SL_\w+)=", values(rendered(plan, blank + "".join(TEMPLATE.values()))), re.MULTILINE)
    library = "".join((HERE.parents[2] / "src" / "safelaunch" / name).read_text() for name in files)
    assert set(re.findall(r"SL_\w+", library)) & set(every) - set(given) == set()


def test_a_sites_own_template_is_one_text_with_the_values_that_it_names() -> None:
    own = "#!/bin/sh\n# >>> directives\n# <<< directives\n# >>> values\n# <<< values\nexec $SL_COMMAND\n"
    assert values(rendered(plan_of(MINIMAL), own)).splitlines()[1:] == ["SL_COMMAND='python train.py'"]


def test_no_value_is_given_the_name_of_a_variable_that_users_have() -> None:
    assert {line.partition("_")[0] for line in values(rendered(plan_of(MINIMAL))).splitlines()[1:]} == {"SL"}


@each(
    ("value", "text"),
    [
        ("20:00:00", "20:00:00"),
        ("gpu[012,035]", "gpu[012,035]"),
        ("abc@h100", "abc@h100"),
        ("", '""'),
        ("a b", '"a b"'),
        ("a#b", '"a#b"'),
        ("it's", '"it\'s"'),
        ('say "x"', '"say \\"x\\""'),
        ("a\\b", '"a\\\\b"'),
        ("a&b|c*2", '"a&b|c*2"'),
        ("é", '"é"'),
    ],
)
def test_a_directives_value_is_bare_or_in_double_quotes(value: str, text: str) -> None:
    assert quote_directive(value) == text


@each(
    ("value", "text"),
    [
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", "'it'\\''s'"),
        ("$(id) `id` \\", "'$(id) `id` \\'"),
        ("two\nlines", "'two\nlines'"),
        ("a\r\nb", "'a'$'\\015''\nb'"),
        ("\x1b[31m", "''$'\\033''[31m'"),
        ("step_5\udcff.pt", "'step_5'$'\\377''.pt'"),
    ],
    ids=["empty", "space", "quote", "shell code", "lines", "carriage return", "escape", "not UTF-8"],
)
def test_a_bash_value_is_in_single_quotes_with_control_characters_shown(value: str, text: str) -> None:
    assert quote_bash(value) == text


@each("word", ["#SBATCH -n 1", "#PBS -N x", "#BSUB -J x", "#DW jobdw"])
def test_no_line_of_a_value_starts_like_a_directive(word: str) -> None:
    script = rendered(plan_of(MINIMAL, f"setup=true\n{word}\n"))
    assert f"\n{word}" not in script.partition("# <<< directives")[2]


def test_a_comment_in_the_setup_stays_as_it_was_written() -> None:
    assert quote_bash("true\n# load it\n#again") == "'true\n# load it\n#again'"


@each("value", ["a\0b", "\udcff"], ids=["NUL", "not UTF-8"])
def test_what_no_script_can_hold_is_refused(value: str) -> None:
    with pytest.raises(TemplateError):
        quote_directive(value)
    with pytest.raises(TemplateError):
        render(TEMPLATE, plan_of(MINIMAL)._replace(command=value), python="/usr/bin/python3", library=())


def test_a_value_longer_than_a_process_can_be_given_is_refused() -> None:
    assert quote_directive("x" * MAX_VALUE_BYTES)
    with pytest.raises(TemplateError, match="120001 bytes"):
        quote_directive("x" * (MAX_VALUE_BYTES + 1))


@each("value", ["a\nb", "a\tb", "\x7f"], ids=["newline", "tab", "delete"])
def test_a_directive_with_a_control_character_is_refused(value: str) -> None:
    with pytest.raises(TemplateError, match="control character"):
        quote_directive(value)


@each("name", ["a\n#SBATCH --uid", "Comment", "", "-x", "a b", "a=b"])
def test_a_directive_with_another_name_than_an_options_is_refused(name: str) -> None:
    with pytest.raises(TemplateError, match="not the name of an sbatch option"):
        directives(plan_of(MINIMAL)._replace(sbatch=((name, "x"),)))


@each("name", ["UID", "IFS", "RANDOM", "BASH_ARGV", "a-b", "a=b", "x\ny", ""])
def test_a_variable_that_bash_would_not_hand_on_is_refused(name: str) -> None:
    with pytest.raises(TemplateError, match="bash does not hand"):
        rendered(plan_of(MINIMAL)._replace(env=((name, "x"),)))


def test_a_run_folder_whose_output_file_slurm_would_misread_is_refused() -> None:
    with pytest.raises(TemplateError, match="backslash"):
        directives(plan_of(MINIMAL)._replace(run_dir="/a\\b"))


def test_a_percent_sign_in_the_run_folder_is_none_of_slurms_symbols() -> None:
    assert "output=/runs/100%%j/slurm-%j.out" in lines_of(plan_of(MINIMAL)._replace(run_dir="/runs/100%j"))


def test_an_option_that_is_given_twice_stands_there_twice() -> None:
    plan = plan_of(MINIMAL)._replace(sbatch=(("gres", "gpu:1"), ("gres", "lustre")))
    assert [line for line in lines_of(plan) if line.startswith("gres")] == ["gres=gpu:1", "gres=lustre"]


def test_what_is_for_the_first_job_only_is_not_in_the_script() -> None:
    assert "--begin" not in rendered(plan_of(EVERYTHING))


@each(("own", "is_singleton", "option"), [
    ("", True, ["--dependency=singleton"]), ("", False, []),
    ("afterok:12,afterany:13", True, ["--dependency=afterok:12,afterany:13,singleton"]),
    ("afterok:12", False, ["--dependency=afterok:12"]),
], ids=["ours", "none", "both", "the-users-alone"])
def test_the_first_job_has_one_dependency_with_the_users_own_and_the_script_has_none(
    own: str, is_singleton: bool, option: list[str]
) -> None:
    plan = plan_of(MINIMAL, *([f"slurm.dependency={own}"] if own else []), "slurm.hold=true")
    assert first_job_options(plan, is_singleton) == [*option, "--hold"]
    assert "dependency" not in "\n".join(directives(plan))


def test_a_flag_has_no_value_and_one_taken_back_is_not_there() -> None:
    assert "exclusive" in lines_of(plan_of(MINIMAL, "slurm.exclusive=true"))
    assert not [line for line in lines_of(plan_of(EVERYTHING, "slurm.exclusive=false")) if "exclusive" in line]


@each(
    ("yaml", "tasks"),
    [(TORCHRUN, 1), (SRUN, 8), (MINIMAL, 1), (SRUN + "launch: {with: none}\n", 1)],
    ids=["torchrun", "srun: one for each GPU", "minimal", "none"],
)
def test_the_job_asks_for_the_tasks_that_its_srun_starts(yaml: str, tasks: int) -> None:
    assert f"ntasks-per-node={tasks}" in lines_of(plan_of(yaml))
    assert f"SL_TASKS_PER_NODE={tasks}\n" in rendered(plan_of(yaml))


def test_tasks_that_the_user_asks_for_win_over_one_for_each_gpu() -> None:
    plan = plan_of(SRUN, "slurm.ntasks_per_node=2")
    assert [line for line in lines_of(plan) if line.startswith("ntasks")] == ["ntasks-per-node=2"]
    assert "SL_TASKS_PER_NODE=2\n" in rendered(plan)


@each(
    ("text", "seconds"),
    [
        ("30", 1800), ("30:10", 1810), ("20:00:00", 72000), ("1-0", 86400), ("1-2:03", 93780), ("1-02:03:04", 93784),
        (None, None), ("UNLIMITED", None), ("soon", None),
    ],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(text: str | None, seconds: int | None) -> None:
    assert time_limit_s(text) == seconds


@each(
    ("limit", "seconds"),
    [("20:00:00", 900), ("04:00:00", 720), ("00:10:00", 30), ("00:01:00", 30), ("infinite", 120)],
    ids=["the kill switch's grace", "5 % of a short job", "at least 30 s", "at least 30 s of a minute", "no limit"],
)
def test_the_warning_comes_in_time_for_a_checkpoint(limit: str, seconds: int) -> None:
    assert warn_before_s(plan_of(MINIMAL, f"slurm.time={limit}")) == seconds


@each("block", ["directives", "values"])
def test_a_template_without_a_block_is_refused(block: str) -> None:
    with pytest.raises(TemplateError, match=f">>> {block}"):
        rendered(plan_of(MINIMAL), {**TEMPLATE, "head": TEMPLATE["head"].replace(f"# <<< {block}", "#")})


def test_the_page_about_the_script_shows_lines_of_a_real_one() -> None:
    page = (HERE.parents[2] / "docs" / "script.md").read_text()
    golden = (HERE / "golden" / "torchrun-16x8.sbatch").read_text()
    shown = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    assert len(shown) >= 5 and all(block in golden for block in shown)
    assert f"{len(golden.splitlines())} lines" in page

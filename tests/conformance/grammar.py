"""Scripts made of idioms: `script_of(seed)` is one of them, always the same with one release of hypothesis.

A script has `#SBATCH` lines in all spellings, options of the command line, SBATCH_ variables, arguments, and a body of
statements that are nested in functions, loops, pipes, subshells, background jobs, here-documents and traps. It ends
within a second, and does under sbatch the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.conformance.case import Case

GROUP = "generated"
MOST_DEPTH = 2
Text = SearchStrategy[str]

WORDS = ("alpha", "two words", "a*b", "x=y", "--lr=0.1", "it's", "", "ünï", "$HOME", "#no")
VARIABLES = ("SLURM_NNODES", "SLURM_NTASKS", "SLURM_JOB_NAME", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION",
             "SLURM_CPUS_PER_TASK", "SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_NTASKS_PER_NODE",
             "SLURM_MEM_PER_NODE", "SLURM_SUBMIT_HOST", "SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID",
             "SLURM_JOB_USER", "SLURM_RESTART_COUNT", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS",
             "SLURM_CLUSTER_NAME", "SLURM_GPUS_ON_NODE", "SLURM_PRIO_PROCESS", "SLURM_GTIDS",
             "SLURM_WAIT", "SLURM_KILL_BAD_EXIT", "USER",
             "SLURM_DISTRIBUTION", "SLURM_OPEN_MODE", "SLURM_EXPORT_ENV", "SBATCH_TIMELIMIT", "TRAIN_PAUSE", "LANG")
FIELDS = ("JobName", "NumNodes", "NumTasks", "CPUs/Task", "TimeLimit", "Partition", "Command", "WorkDir", "StdOut",
          "StdErr", "Requeue", "Restarts", "Dependency", "Comment", "Account", "QOS", "Features", "MinMemoryNode",
          "TresPerNode", "Licenses", "OverSubscribe", "BatchFlag")
COLUMNS = ("%j", "%P", "%D", "%C", "%l", "%a", "%q", "%u", "%Z", "%o", "%f", "%m", "%k", "%Q")


def script_of(seed: int) -> Case:
    """The script of this number. The first example of a search is always the simplest: so the second one."""
    found: list[Case] = []

    @seeded(seed)
    @settings(max_examples=2, database=None, deadline=None, phases=[Phase.generate], derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(scripts(seed))
    def draw(case: Case) -> None:
        found.append(case)

    draw()
    return found[-1]


@st.composite
def scripts(draw: DrawFn, seed: int = 0) -> Case:
    """A whole script with the way in which it is submitted."""
    nodes = draw(st.sampled_from((1, 1, 1, 2)))
    head = draw(_head(nodes))
    body = [*draw(_preamble()), *draw(_statements(0)), *draw(_ending())]
    options = draw(st.sampled_from(((), (), (), (), ("-t", "3"), ("--time=4", "-J", "cli"), ("-c", "2"),
                                    ("--comment=cli",))))
    env = draw(st.sampled_from(((), (), (), (), (("SBATCH_TIMELIMIT", "6"),), (("SBATCH_JOB_NAME", "byenv"),),
                                (("SBATCH_PARTITION", "short"),), (("LR", "0.1"), ("EMPTY", "")))))
    args = tuple(draw(st.one_of(st.just([]), st.just([]), st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))))
    text = "\n".join(["#!/bin/bash", *head, *(line.replace("§", str(turn)) for turn, line in enumerate(body))]) + "\n"
    return Case(f"generated-{seed}", GROUP, text, options=options, env=env, args=args, limit_s=150.0)


# --- options ------------------------------------------------------------------------------------------------------

@st.composite
def _head(draw: DrawFn, nodes: int) -> list[str]:
    words = [draw(_option(("-N", "--nodes"), str(nodes)))]
    tasks = draw(st.sampled_from((None, None, ("-n", "--ntasks", nodes * 2), ("", "--ntasks-per-node", 2),
                                  ("", "--tasks-per-node", 1), ("-n", "--ntasks", nodes))))
    if tasks:
        words.append(draw(_option(tuple(filter(None, tasks[:2])), str(tasks[2]))))
    for names, values in draw(st.lists(st.sampled_from(OPTIONS), max_size=4, unique=True)):
        words.append(draw(_option(names, draw(st.sampled_from(values)))))
    lines: list[str] = []
    while words:
        count = draw(st.integers(1, 2))
        blank, comment = draw(st.sampled_from((" ", " ", "\t", "   "))), draw(st.sampled_from(("", "", "", "  # why")))
        lines.append(f"#SBATCH{blank}{' '.join(words[:count])}{comment}")
        words = words[count:]
        lines += draw(st.sampled_from(((), (), ("# a comment",), ("##SBATCH --nodes=5",), ("",))))
    return lines


OPTIONS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("-t", "--time"), ("5", "0:05:00", "00:10:00", "7:30", "1-0", "0-01:00")),
    (("-J", "--job-name"), ("gen", "gen.v2", "gen-7b", "'two words'")),
    (("-c", "--cpus-per-task"), ("2", "3")),
    (("--mem",), ("2G", "1500", "0")),
    (("-o", "--output"), ("%x-%j.out", "own.log", "slurm-%j.txt")),
    (("--gres",), ("gpu:1", "gpu:2")),
    (("-C", "--constraint"), ("fast", "'fast&big'")),
    (("-L", "--licenses"), ("matlab:1", "matlab")),
    (("-p", "--partition"), ("short", "main")),
    (("-A", "--account"), ("second", "sl-project")),
    (("-q", "--qos"), ("high", "normal")),
    (("--comment",), ("words", "'two words'", '"lr=0.1"')),
    (("--nice",), ("5", "100")),
    (("--mail-type",), ("END", "FAIL,END")),
    (("--open-mode",), ("append", "truncate")),
    (("--hint",), ("nomultithread",)),
    (("-m", "--distribution"), ("block", "cyclic")),
)


def _option(names: Sequence[str], value: str) -> Text:
    spellings = []
    for name in names:
        spellings += [f"{name} {value}", f"{name}={value}" if name.startswith("--") else f"{name}{value}"]
    return st.sampled_from(spellings)


# --- the body -----------------------------------------------------------------------------------------------------

def _preamble() -> SearchStrategy[list[str]]:
    return st.sampled_from((["set -e"], ["set -u"], ["set -euo pipefail"], ["set -o pipefail"], [], [], [],
                            ["umask 027"], ["export OMP_NUM_THREADS=2"], ["shopt -s nullglob"],
                            ["cd \"$SLURM_SUBMIT_DIR\""],
                            ["ulimit -c 0"], ["export PATH=$PWD:$PATH"],
                            ["trap 'echo \"end $?\" > ended.txt' EXIT"],
                            ["trap 'echo \"failed $?\" >> errors.txt' ERR"]))


@st.composite
def _statements(draw: DrawFn, depth: int) -> list[str]:
    found: list[str] = []
    for _ in range(draw(st.integers(1 if depth else 2, 2 if depth else 5))):
        kinds: list[Callable[[int], SearchStrategy[list[str]]]] = [_simple, _simple, _srun, _itself]
        if depth < MOST_DEPTH:
            kinds += [_compound, _compound]
        found += draw(draw(st.sampled_from(kinds))(depth))
    return found


def _simple(depth: int) -> SearchStrategy[list[str]]:
    variable, word = st.sampled_from(VARIABLES), st.sampled_from(WORDS)
    return st.one_of(
        variable.map(lambda name: [f'echo "{name} <${{{name}-unset}}>"']),
        variable.map(lambda name: [f'echo "${{{name}:-none}}" >> out§.txt']),
        word.map(lambda text: [f"printf '%s\\n' {quote(text)} > 'file §.txt'"]),
        st.just(['echo "$# arguments: <${1-none}> <${*}>"']),
        st.just(['for one in "$@"; do printf "<%s>" "$one"; done; echo']),
        st.just(["mkdir -p dir§/sub && touch dir§/sub/made"]),
        st.just(['echo "world $((SLURM_NNODES * 4)) port $((12000 + 34))"']),
        st.just(['list§=(a "b c" d); echo "${#list§[@]} ${list§[1]} ${list§[*]:1}"']),
        st.just(['name§=model-7b.pt; echo "${name§%.pt} ${name§#*-} ${name§/7b/13b} ${name§^^}"']),
        st.just(["echo to-stderr >&2"]),
        st.just(["read -r line || echo no-input"]),
        st.just(["echo § | tee -a tee.log | sed 's/^/> /'"]),
        st.just(["test -e missing || echo missing"]),
        st.just(["pwd | sed 's#.*/##'; umask; ulimit -c"]),
        st.just(["tr a-z A-Z <<< 'here string'"]),
        st.just(["head -c 3000 /dev/zero | tr '\\0' x > big§; wc -c < big§"]),
        st.just(["python3 -c 'import os, sys; print(len(sys.argv), os.getcwd().rsplit(\"/\", 1)[1])' a b"]),
        st.just(["hostname -s > /dev/null; id -un; echo \"$SLURMD_NODENAME\""]),
        st.just(['tmp§=$(mktemp -d); echo x > "$tmp§/f"; cp "$tmp§/f" kept§; rm -rf "$tmp§"']),
        st.just(["false || echo \"code $?\""]),
        st.just(["mapfile -t rows < <(seq 3); echo \"${rows[2]}\""]),
        st.just(["exec 8> eight§.txt; echo eight >&8; exec 8>&-"]),
        st.just(["env | grep -c '^SLURM_JOB_ID='"]),
        st.just(["type -t srun > /dev/null && echo has-srun"]),
        st.just(["sleep 0.05; wait"]),
    )


def _srun(depth: int) -> SearchStrategy[list[str]]:
    flags = st.sampled_from(("", "", "-n 1", "-N 1 -n 1", "--ntasks=1", "--label", "-u", "--overlap -n 1",
                             "--exact -n 1",
                             "--export=ALL,A=1", "--kill-on-bad-exit=0", "-c 1", "--quiet", "-K", "--wait=0", "-J step",
                             "--cpu-bind=none", "--mem=0", "-l -n 1", "--input=none", "--chdir=/tmp -n 1"))
    program = st.sampled_from(('"$SLURM_SUBMIT_DIR/rank" §', "true", "bash -c 'echo out; echo err >&2'",
                               "bash -c 'echo \"task $SLURM_PROCID of $SLURM_NTASKS\"'",
                               "bash -c 'touch \"$SLURM_SUBMIT_DIR/by$SLURM_PROCID.§\"'",
                               "bash -c 'echo \"${A-none} ${OMP_NUM_THREADS-none} $SLURM_LOCALID\"'", "id -un"))
    called = st.tuples(flags, program).map(lambda two: f"srun {two[0]} {two[1]}".replace("  ", " "))
    return st.one_of(
        called.map(lambda call: [call]),
        called.map(lambda call: [call]),
        called.map(lambda call: [f"{call} > step§.log 2>&1"]),
        called.map(lambda call: [f"got§=$({call} | sort); echo \"got <$got§>\""]),
        called.map(lambda call: [f"{call} | sed 's/^/| /'"]),
        called.map(lambda call: [f"{call} || exit $?"]),
        called.map(lambda call: [f"if {call}; then echo well; fi"]),
        called.map(lambda call: [f"{call} &", "wait $!"]),
        called.map(lambda call: [f"time§=1; timeout 20 {call}"]),
        st.just(["srun -n 1 bash -c 'exit 3' || echo \"srun $?\""]),
        st.just(["srun -n 1 bash -c 'exit 5'", "code=$?", "echo \"code $code\" > code§.txt"]),
        st.just(["srun --output=step_%t.§.out echo to-file"]),
        st.just(["srun --output=same.out echo §"]),
        st.just(["srun -n 1 bash <<EOF", "echo \"inner § \\$SLURM_PROCID\"", "EOF"]),
        st.just(["printf 'l1\\nl2\\n' | srun -n 1 cat"]),
        st.just(["srun -n 1 cat < /dev/null; echo \"cat $?\""]),
        st.just(["srun -n 1 bash -c 'kill -TERM $$' || echo \"srun $?\""]),
    )


def _itself(depth: int) -> SearchStrategy[list[str]]:
    fields = st.lists(st.sampled_from(FIELDS), min_size=1, max_size=4, unique=True)
    columns = st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True)
    job = st.sampled_from(("$SLURM_JOB_ID", "${SLURM_JOBID}", '"$SLURM_JOB_ID"'))
    return st.one_of(
        st.tuples(job, fields).map(lambda two: [
            f"scontrol show job {two[0]} | tr ' ' '\\n' | grep -E '^({'|'.join(two[1])})='"]),
        st.tuples(job, columns).map(lambda two: [f"squeue -h -j {two[0]} -o '{' '.join(two[1])}'"]),
        st.just(["scontrol show hostnames \"$SLURM_JOB_NODELIST\" | wc -l"]),
        st.just(["log§=$(scontrol show job $SLURM_JOB_ID | sed -n 's/^ *StdOut=//p'); test -e \"$log§\" && echo log"]),
        st.just(["here§=$(dirname \"$(scontrol show job $SLURM_JOB_ID | sed -n 's/^ *Command=\\([^ ]*\\).*/\\1/p')\")",
                 "[ \"$here§\" = \"$SLURM_SUBMIT_DIR\" ] && echo same-folder"]),
        st.just(["sleep 3; test -e slurm-$SLURM_JOB_ID.out && grep -q . slurm-$SLURM_JOB_ID.out && echo own-log"]),
        st.just(["if [ \"${SLURM_RESTART_COUNT:-0}\" -gt 0 ]; then echo again; else echo first; fi"]),
        st.just(["echo \"out_${SLURM_JOB_NAME}\" && mkdir -p \"out_${SLURM_JOB_NAME}\""]),
        st.just(["until sacct -n -X -j $SLURM_JOB_ID -o State | grep -q RUN; do sleep 0.1; done",
                 "sacct -n -X -j $SLURM_JOB_ID -o JobName%30,Partition | tr -s ' '"]),
        st.just(["[[ $SLURM_JOB_ID =~ ^[0-9]+$ ]] && echo numeric; echo \"${0##*/}\""]),
    )


@st.composite
def _compound(draw: DrawFn, depth: int) -> list[str]:
    inner = draw(_statements(depth + 1))
    # The end of a here-document stands at the line's beginning.
    inside = inner if any("<<" in line for line in inner) else [f"  {line}" for line in inner]
    kind = draw(st.sampled_from(("function", "if", "for", "while", "subshell", "group", "background", "pipe", "case",
                                 "cd", "here", "eval", "bash", "redirect", "until")))
    wrapped = {
        "function": ["f§() {", "  local x=$1", *inside, "}", "f§ \"${1-none}\""],
        "if": ["if [ \"$SLURM_NNODES\" -ge 1 ]; then", *inside, "else", "  echo never", "fi"],
        "for": ["for i in 1 2; do", *inside, "done"],
        "while": ["n=0", "while ((n++ < 1)); do", *inside, "done"],
        "until": ["u=0", "until [ $u = 1 ]; do", *inside, "  u=1", "done"],
        "subshell": ["(", *inside, ")"],
        "group": ["{", *inside, "} 2>&1"],
        "background": ["{", *inside, "} &", "wait"],
        "pipe": ["{", *inside, "} | cat"],
        "case": ["case ${SLURM_JOB_NAME-} in", "*)", *inside, "  ;;", "esac"],
        "cd": ["mkdir -p in§ && (cd in§", *inside, ")"],
        "redirect": ["{", *inside, "} > part§.txt 2>&1"],
        "here": ["cat > made§.sh <<'MADE'", *inner, "MADE", "bash made§.sh one"],
        "eval": ["eval 'echo evaluated; true'", *inner],
        "bash": ["bash -s two <<'SHELL'", *inner, "SHELL"],
    }
    if kind in ("here", "bash") and any("'MADE'" in line or "'SHELL'" in line for line in inner):
        kind = "group"
    return wrapped[kind]


def _ending() -> SearchStrategy[list[str]]:
    return st.sampled_from(([], [], [], ["exit 0"], ["exit 3"], ["exit $((1 + 1))"], ["false"], ["echo done"],
                            ["exec srun -n 1 echo last"], ["srun bash -c 'exit 4'"], ["[ -e no-such-file ]"],
                            ["srun -n 1 true || exit $?", "echo trained"], ["no_such_command"], ["kill -TERM $$"]))


def quote(text: str) -> str:
    """As a word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def shrink(seed: int, differs: Callable[[Case], list[str]], most: int = 60) -> tuple[Case, list[str]]:
    """The smallest script found from this seed that still differs, and how; at most so many are tried."""
    found: list[tuple[Case, list[str]]] = []
    tried = 0

    @seeded(seed)
    @settings(max_examples=2, database=None, deadline=None, phases=[Phase.generate, Phase.shrink], derandomize=False,
              suppress_health_check=list(HealthCheck), report_multiple_bugs=False, print_blob=False)
    @given(scripts(seed))
    def draw(case: Case) -> None:
        nonlocal tried
        tried += 1
        differences = differs(case) if tried <= most else []
        if differences:
            found.append((case, differences))
        assert not differences

    with suppress(AssertionError, FlakyFailure):
        draw()
    return min(found, key=lambda one: len(one[0].text), default=(script_of(seed), []))

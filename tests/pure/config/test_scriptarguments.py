"""Words behind a script: keys, flags of sbatch, arguments; and whether a script reads any."""

from __future__ import annotations

from safelaunch.config.resolve import ConfigLayer, Resolved, resolve
from safelaunch.config.scripts.scriptarguments import CommandWords, first_reading, sort_words
from tests.tables import each

READS = "#!/bin/bash\n#SBATCH -N 1\nset -e\npython train.py $1\n"


def read(text: str, words: tuple[str, ...] = (), behind: tuple[str, ...] = ()) -> Resolved:
    return resolve([ConfigLayer("file", "job.slurm", text)], ["cluster=slurm", *words], {"HOME": "/h"}, behind)


@each(("words", "behind", "keys", "flags", "arguments"), [
    ("cfg.yaml 3", "", "", "", "cfg.yaml 3"),
    ("spare_nodes=1 lr=3 resume.dir=x", "", "spare_nodes=1 resume.dir=x", "", "lr=3"),
    ("name=x model=gpt model.layers=3 env.A=1 slurm.qos=h", "", "name=x env.A=1 slurm.qos=h", "",
     "model=gpt model.layers=3"),
    ("env=prod slurm=1 sweep={a:[1]}", "", "sweep={a:[1]}", "", "env=prod slurm=1"),
    ("resume.dirr=x spare_node=1", "", "resume.dirr=x spare_node=1", "", ""),   # mistyped keys stay errors
    ("a", "--qos=high -p debug b -x", "", "--qos=high -p debug", "a b -x"),
    ("", "-N 2 -HO -- -x --lr 3", "", "-N 2 -HO", "-x --lr 3"), ("", "-- -x -- y", "", "", "-x -- y"),
    ("", "name=x", "", "", "name=x"), ("", "- a", "", "", "- a"), ("", "--image x y", "", "--image x", "y"),
])
def test_each_word_goes_where_sbatchs_users_expect_it(words: str, behind: str, keys: str, flags: str,
                                                      arguments: str) -> None:
    assert sort_words(words.split(), behind.split()) == CommandWords(keys.split(), flags.split(), arguments.split())


def test_arguments_are_kept_as_typed_and_said_once() -> None:
    typed = ("a b", "it's", "$HOME ${X}", "", "new\nline", "ünï")
    found = read(READS, typed, ("-t", "5", "--", "-x"))
    assert found.config["args"] == [*typed, "-x"] and found.config["slurm"]["time"] == 5
    assert [note for note in found.notes if note.startswith("arguments of the script: ")] == [
        "arguments of the script: 'a b' 'it'\"'\"'s' '$HOME ${X}' '' 'new\nline' ünï -x".replace("ünï", "'ünï'")]


def test_a_key_that_may_be_meant_as_an_argument_is_said() -> None:
    assert any("-- name=exp2" in note for note in read(READS, ("name=exp2",)).notes)
    assert not any("-- name=exp2" in note for note in read("#!/bin/bash\n#SBATCH -N 1\ntrue\n", ("name=exp2",)).notes)


@each(("body", "reads"), [
    ("python train.py $1", (2, "$1")), ('python train.py "$@"', (2, "$@")), ("[ $# -gt 0 ] || exit 2", (2, "$#")),
    ("A=${1}", (2, "${1}")), ("A=${1:-x}", None), ("awk '{print $1}' x", None), ("# $1", None),
    ("f() {\n  echo $1\n}\nf a", None), ("f() { echo $1; }\nf a", None), ("f() {\n  echo $1\n}\nf $2", (5, "$2")),
    ("set -- a b\necho $1", None), ("cat <<'X'\n$1\nX", None), ("echo $10000", (2, "$1")),
    (": ${1:?need a config}", (2, "${1:?need a config}")), ("C=${2?no}", (2, "${2?no}")), ("a ${@:2}", (2, "${@:")),
    ("while getopts ab: o; do\n:\ndone", (2, "getopts")), ("shift", (2, "shift")), ("true && shift 2", (2, "shift")),
    ("f() {\n  shift\n}\nf a", None), ("echo shift getopts", None), ("python shift.py --shift 3", None),
    ("set -- a\nshift", None), ("A=${1:-x}\npython shift.py", None),
], ids=lambda value: str(value))
def test_what_a_script_reads_of_its_arguments_is_found(body: str, reads: tuple[int, str] | None) -> None:
    assert first_reading(f"#!/bin/bash\n{body}\n") == reads
    if reads is not None:
        notes = read(f"#!/bin/bash\n{body}\n").notes
        assert any(f"job.slurm:{reads[0]}: reads {reads[1]}, an argument" in note for note in notes), notes
        assert not any("an argument" in note for note in read(f"#!/bin/bash\n{body}\n", ("a",)).notes)
    assert first_reading(f"#!/usr/bin/env python3\n{body}\n") is None

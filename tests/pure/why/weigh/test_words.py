"""Plain words and their weight for each category, and what error numbers are a sign of."""

from __future__ import annotations

from safelaunch.why.categories import NAMES, TABLE
from safelaunch.why.weigh.errnos import category_of_errno
from safelaunch.why.weigh.packages import _ABOUT, _PACKAGES
from safelaunch.why.weigh.words import BUCKETS, NO_FAILURE, load, shares_of, sound_of, spoken, weigh_words
from tests.tables import each

SAYINGS = {
    "storage": "failed to write block 7: no space left", "checkpoint": "the checkpoint is incomplete: 61 of 64 shards",
    "data": "cannot decode image 71 of the dataset", "config": "option foo must be one of [a, b]",
    "environment": "the shared library libfoo is not installed", "version_mismatch": "foo requires bar>=2.1",
    "network": "connection reset: host unreachable", "rendezvous": "some workers never joined the rendezvous",
    "hub_auth": "401 unauthorized: the API key is invalid", "gpu_hardware": "GPU 3 is lost: uncorrectable ECC",
    "node_failure": "node n7 is down, no heartbeat", "host_oom": "the host ran out of memory: oom killer",
    "cuda_oom": "GPU memory: cannot allocate on the device", "numerical": "gradient norm is NaN",
    "native_crash": "caught SIGSEGV, core dumped", "hang": "no progress: a collective is stuck",
    "preempted": "preempted: the spot instance is reclaimed", "time_limit": "wall time is used up",
    "cancelled": "cancelled by user", "user_code": "tensors have different shapes",
}


@each("category", SAYINGS)
def test_words_of_a_category_weigh_most_for_it(category: str) -> None:
    weights = weigh_words(SAYINGS[category])
    assert max(weights, key=lambda name: weights[name]) == category, weights


def test_the_model_knows_every_category_of_a_failure_and_no_other_class() -> None:
    model = load()
    assert set(model.classes) == {*SAYINGS, *NO_FAILURE} == {*NAMES, *NO_FAILURE} - {"unknown"}
    assert len(model.weights) == BUCKETS * len(model.classes)


def test_tables_name_known_categories_only() -> None:
    named = {category for category, _ in _PACKAGES.values()} | {row[1] for row in _ABOUT}
    assert named <= set(TABLE)


@each("text", ["", "all went well", "tokenizer", "4012 (before) vs 4011", "informed"])
def test_a_word_inside_another_says_nothing(text: str) -> None:
    assert sound_of(text) == ("", 0.0)


@each("text", ["step 3 of 10, loss 2.1", "srun: error: n3: task 2: Exited with exit code 1"])
def test_what_states_nothing_speaks_for_no_category(text: str) -> None:
    assert sound_of(text) == ("", 0.0)


def test_a_text_without_words_has_no_share() -> None:
    assert shares_of("") == shares_of(" -- ") == {}


def test_the_words_that_spoke_are_named() -> None:
    assert "quota" in spoken("run 7: the quota of /a/b is used up", "storage")
    assert spoken("x", "unknown") == []


@each(
    ("path", "category"),
    [("/a/step_7/model.safetensors", "checkpoint"), ("/runs/ckpt/meta", "checkpoint"), ("conf/train.yaml", "config"),
     ("/a/b/0001.tar", "data"), ("/usr/lib/libfoo.so.8", "environment")])
def test_the_kind_of_a_named_file_speaks(path: str, category: str) -> None:
    weights = weigh_words(f"No such file: '{path}'")
    assert max(weights, key=lambda name: weights[name]) == category, weights


@each(
    ("text", "category"),
    [("[Errno 28] x", "storage"), ("errno = 11", None), ("rc = -28", "storage"), ("rc = 28", None),
     ("failed with error -110", "network"), ("ESTALE", "storage"), ("connect: ECONNREFUSED", "network"),
     ("[Errno 2] x", None), ("exit code 5", None), ("ERROR", None), ("errno: 98", "rendezvous")],
)
def test_error_numbers_and_names_are_known(text: str, category: str | None) -> None:
    assert category_of_errno(text) == category

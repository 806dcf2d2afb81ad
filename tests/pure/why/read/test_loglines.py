from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.why import loglines
from tests.tables import each


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


WHO = {
    "nothing": (b"loss is 3", None, None, b"loss is 3"),
    "safelaunch": (b"[gpu-07:3]:hello", "gpu-07", 3, b"hello"),
    "a node's own, of no rank": (b"[gpu-07:node]:hello", "gpu-07", None, b"hello"),
    "safelaunch keeps indentation": (b"[gpu-07:3]:  File", "gpu-07", 3, b"  File"),
    "host and rank without a colon": (b"[host1:2]  File", "host1", 2, b"  File"),
    "a blank of another tool's behind it": (b"[gpu-07:3]: Traceback", "gpu-07", 3, b"Traceback"),
    "... and the indentation of a traceback": (b"[gpu-07:3]:   File", "gpu-07", 3, b"   File"),
    "torchrun --tee": (b"[default3]:hello", None, 3, b"hello"),
    "a role of the user's": (b"[trainer12]:hello", None, 12, b"hello"),
    "torch": (b"[rank17]: hello", None, 17, b"hello"),
    "torch keeps indentation": (b"[rank17]:   File", None, 17, b"  File"),
    "srun --label": (b"17: hello", None, 17, b"hello"),
    "srun --label, padded": (b"  7: hello", None, 7, b"hello"),
    "srun --label, an empty line": (b"7:", None, 7, b""),
    "torch inside srun": (b"0: [rank1]: hello", None, 1, b"hello"),
    "torchrun inside srun": (b"3: [default5]:hello", None, 5, b"hello"),
    "torch inside torchrun": (b"[default1]:[rank9]: hello", None, 9, b"hello"),
    "torch inside safelaunch": (b"[gpu-07:1]:[rank57]: hello", "gpu-07", 57, b"hello"),
    "a line of another run inside safelaunch": (b"[gpu-07:3]:[n9:9]:hello", "gpu-07", 3, b"hello"),
    "a process group's rank is no rank": (b"[rank17]:[E Process.cpp:523] [Rank 1] hello", None, 17, b"hello"),
    "a program that names its rank": (b"[Rank 3] hello", None, 3, b"hello"),
    "with an equals sign": (b"[rank=17] hello", None, 17, b"hello"),
    "with a colon": (b"[RANK: 17] hello", None, 17, b"hello"),
    "with the number of ranks": (b"[rank 17/384]: hello", None, 17, b"hello"),
    "in parentheses": (b"(rank 17) hello", None, 17, b"hello"),
    "without brackets": (b"Rank 17: hello", None, 17, b"hello"),
    "before a bar": (b"rank=17 | hello", None, 17, b"hello"),
    "the rank of the training": (b"[global_rank: 17] hello", None, 17, b"hello"),
    "both ranks": (b"[default1]:[global_rank 17] hello", None, 17, b"hello"),
    "the rank on the node": (b"[local_rank 3] hello", None, 3, b"hello"),
    "of the training before that on the node": (b"[local_rank 3] [rank17]: hello", None, 17, b"hello"),
    "a worker": (b"worker-17: hello", None, 17, b"hello"),
    "behind a stamp": (b"2024-05-01 12:00:35 [rank=17] hello", None, 17, b"hello"),
    "a node's name with dots": (b"[gpu-7.cluster.example:3]:hello", "gpu-7.cluster.example", 3, b"hello"),
    "a step is no rank": (b"[17/384] hello", None, None, b"[17/384] hello"),
    "a sentence about a rank": (b"rank 17 waits for the others", None, None, b"rank 17 waits for the others"),
    "pdsh before a rank": (b"gpu-08: [rank17]: hello", "gpu-08", 17, b"hello"),
    "mpirun --tag-output": (b"[1,17]<stderr>:hello", None, 17, b"hello"),
    "Open MPI": (b"[node01:12345] *** Process received signal ***", "node01", None, b"*** Process received signal ***"),
    "Ray": (b"(RayWorkerWrapper pid=270291, ip=10.175.94.190) hello", "10.175.94.190", None, b"hello"),
    "Ray, repeated": (b"(main_task pid=21) [repeated 3x across cluster] hello", None, None, b"hello"),
    "Ray, coloured": (b"\x1b[36m(main_task pid=21)\x1b[0m hello", None, None, b"hello"),
    "Ray, colours without their escape": (b"[36m(main_task pid=21)[0m hello", None, None, b"hello"),
    "NCCL": (b"node-3:4211:4302 [5] NCCL WARN Cuda failure", "node-3", 5, b"NCCL WARN Cuda failure"),
    "UCX": (b"[1580334916.007460] [cgpu09:43722:0]         module.c:246  UCX  ERROR x", "cgpu09", None,
            b"module.c:246  UCX  ERROR x"),
    "a time is no task": (b"12:30:05 hello", None, None, b"hello"),
    "a logger's name is no host": (b"wandb: hello", None, None, b"wandb: hello"),
}


@each(("line", "host", "rank", "payload"), WHO.values())
def test_a_prefix_tells_who_prints(line: bytes, host: str | None, rank: int | None, payload: bytes) -> None:
    parsed = loglines.parse(line)
    assert (parsed.host, parsed.rank, parsed.payload) == (host, rank, payload)


THEN = "2024-05-01T12:00:35.250"
WHEN = {
    "Python's logging": (b"2024-05-01 12:00:35,250 - trainer - INFO - hello", THEN, b"hello"),
    "DeepSpeed": (b"[2024-05-01 12:00:35,250] [WARNING] [engine.py:16:step] hello", THEN, b"hello"),
    "Megatron": (b" [2024-05-01 12:00:35] iteration 7", "2024-05-01T12:00:35", b"iteration 7"),
    "Slurm": (b"[2024-05-01T12:00:35.250] error: hello", THEN, b"error: hello"),
    "docker": (b"2024-05-01T12:00:35.250000000Z stderr F hello", THEN, b"hello"),
    "syslog with a zone": (b"2024-05-01T12:00:35.250+02:00 gpu7 kernel: hello", THEN, b"hello"),
    "Hydra": (b"[2024-05-01 12:00:35,250][fairseq.trainer][ERROR] - hello", THEN, b"hello"),
    "loguru": (b"2024-05-01 12:00:35.250 | ERROR    | a.b:f:12 - hello", THEN, b"hello"),
    "transformers": (b"[INFO|trainer.py:12] 2024-05-01 12:00:35,250 >> hello", THEN, b"hello"),
    "TensorFlow": (b"2024-05-01 12:00:35.250: E external/x/cuda_dnn.cc:92] hello", THEN, b"hello"),
    "SGLang": (b"[2024-05-01 12:00:35 TP3] hello", "2024-05-01T12:00:35", b"hello"),
    "dmesg -T": (b"[Wed May  1 12:00:35 2024] hello", "2024-05-01T12:00:35", b"hello"),
    "absl's first lines": (b"E0000 00:00:1714564835.250000  464956 cuda_dnn.cc:8310] hello", THEN, b"hello"),
    "torch": (b"[rank3]:[E501 12:00:35.250000000 Process.cpp:12] hello", "1970-05-01T12:00:35.250", b"hello"),
    "torch's elastic agent": (b"W0501 12:00:35.250000 4583 site-packages/torch/x/api.py:897] hello",
                              "1970-05-01T12:00:35.250", b"hello"),
    "vLLM": (b"WARNING 05-01 12:00:35 custom.py:14] hello", "1970-05-01T12:00:35", b"hello"),
    "syslog": (b"May  1 12:00:35 gpu7 kernel: [ 5148.551209] NVRM: Xid", "1970-05-01T12:00:35", b"NVRM: Xid"),
    "the time of day": (b"12:00:35.250 [I] hello", "1970-01-01T12:00:35.250", b"hello"),
}


@each(("line", "when", "payload"), WHEN.values(), ids=WHEN.keys())
def test_a_stamp_tells_when(line: bytes, when: str, payload: bytes) -> None:
    parsed = loglines.parse(line)
    assert parsed.t == pytest.approx(at(when))
    assert parsed.payload == payload


def test_a_stamp_since_boot_tells_no_day() -> None:
    parsed = loglines.parse(b"[ 5148.551209] NVRM: Xid (PCI:0000:3b:00): 79")
    assert (parsed.t, parsed.payload) == (None, b"NVRM: Xid (PCI:0000:3b:00): 79")


def test_the_body_keeps_what_loggers_write() -> None:
    parsed = loglines.parse(b"3: [rank9]:[E ProcessGroupNCCL.cpp:523] hello")
    assert parsed.body == b"[E ProcessGroupNCCL.cpp:523] hello"


def test_colours_and_control_characters_are_dropped_and_tabs_are_kept() -> None:
    assert loglines.parse(b"\x1b[1;31mERR\x07OR\x1b[0m\tx\x00y\r").payload == b"ERROR\txy"


def test_lines_of_one_speaker_share_a_stream_whatever_their_stamps() -> None:
    first = loglines.parse(b"[gpu-07:3]:2024-05-01 12:00:35,250 - a - ERROR - Traceback (most recent call last):")
    assert loglines.parse(b"[gpu-07:3]:ValueError: x").stream == first.stream
    assert loglines.parse(b"[gpu-07:4]:ValueError: x").stream != first.stream


def test_hosts_are_learned_where_they_label_most_lines() -> None:
    sample = b"node01: a\nnode02: b\nnode01: c\nother\n"
    hosts = loglines.learn_hosts(sample)
    assert hosts == {b"node01", b"node02"}
    assert loglines.parse(b"node02: hello", hosts).host == "node02"


def test_a_word_with_a_colon_on_few_lines_is_no_host() -> None:
    assert loglines.learn_hosts(b"fp16: True\nlayers\nheads\nsize\n") == frozenset()


def test_text_is_bounded_and_shows_bytes_that_are_no_utf_8() -> None:
    assert loglines.text(b"a\xffb" + b"c" * 5000, 10) == "a�bccccccc"


@given(st.binary(max_size=600))
def test_any_bytes_can_be_taken_apart(line: bytes) -> None:
    parsed = loglines.parse(line, frozenset({b"node01"}))
    assert len(parsed.payload) <= len(parsed.body) <= len(line)


@given(st.lists(st.sampled_from([
    b"[rank1]:", b"17: ", b"[gpu-1:2]:", b"2024-05-01 12:00:35,250 ", b"[E501 12:00:35.25 x.cpp:1] ", b"[INFO] ", b"- ",
    b"\x1b[0m", b"[", b"]", b":", b"| ERROR |", b"x", b" ", b"(a pid=1) ", b"99-99-99", b"[99/99/99 99:99:99] ",
]), max_size=12))
def test_heaps_of_prefixes_can_be_taken_apart(pieces: list[bytes]) -> None:
    line = b"".join(pieces)
    assert loglines.plain(line).endswith(loglines.parse(line).payload)


def test_the_rank_that_a_library_names_itself_by_belongs_to_its_words() -> None:
    line = loglines.parse(b"[rank3]:[E1121 20:38:35.1 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught")
    assert line.payload == b"Watchdog caught"
    assert loglines.said_by(line) == b"[Rank 3] Watchdog caught"
    assert loglines.said_by(loglines.parse(b"[rank3]: hello")) == b"hello"

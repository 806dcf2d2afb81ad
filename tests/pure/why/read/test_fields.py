"""Fields inside of lines: hosts, ranks, exit codes and signals by key and shape, whoever prints them."""

from __future__ import annotations

from safelaunch.why.read.fields import Fields, is_report, read_fields
from tests.tables import each


@each("text, found", (
    ("n7.cluster: rank 355 exited with code 134", Fields("n7.cluster", 355, 134, 6)),
    ("n7: rank 358 died from signal 15", Fields("n7", 358, None, 15)),
    ("ERROR: Rank 2 crashed with exit code -7.", Fields(None, 2, -7, 7)),
    ("NET/IB : Got completion from peer 10.0.0.7<40000> with error 12", Fields("10.0.0.7")),
    ("Rank 2, node gpu-a-01, device 2: nan", Fields("gpu-a-01", 2)),
    ("MPICH ERROR [Rank 519] [job id 9.0] [Tue Jun 11 15:11:42 2024] [c1207] - Abort(5)", Fields("c1207", 519)),
    ("[pkg.util:158, rank=6] refused", Fields(None, 6)),
    ("[rank: 3] Seed set to 42", Fields(None, 3)),
    ("ray::f() (pid=12, ip=10.0.0.7, actor_id=5)", Fields("10.0.0.7")),
    ("Job was executed on host(s) <8*n-62-20>, in queue", Fields("n-62-20")),
    ("Signal: Aborted (6)", Fields(signal=6)),
    ("run.sh: line 3:  4242 Aborted                 (core dumped) ./solver", Fields(signal=6)),
    ("Task /job:jax_worker/replica:0/task:5 heartbeat timeout", Fields(rank=5)),
    ("*** reported by process [2211512321,7]", Fields(rank=7)),
    ("Error received from peer ipv4:10.0.0.12:12345", Fields("10.0.0.12")),
    ("slurmstepd: error: on node failure the job is requeued", Fields()),
    ("ranked 3rd of the host keys; node failure; exit status is not known", Fields()),
))
def test_the_fields_of_a_line(text: str, found: Fields) -> None:
    assert read_fields(text) == found


@each("text, is_one", (
    ("n8: rank 3 died from signal 15", True),
    ("  error_file: /tmp/x/error.json", True),
    ("subprocess.CalledProcessError: Command 'x' returned non-zero exit status 1.", True),
    ("n7: line 3:  4242 Aborted (core dumped) ./solver", True),
    ("the server answered with status code 500", False),
    ("cannot write: No space left on device", False),
))
def test_what_only_tells_that_a_process_ended(text: str, is_one: bool) -> None:
    assert is_report(text) is is_one

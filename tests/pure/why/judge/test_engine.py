"""The judgement: cause before symptom, the last launch, what later steps excuse, chains, endings, suspects."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from safelaunch.why.findings import CLOCK_STAMPS
from tests.pure.why.judged import judge_text
from tests.tables import each

STEPS = "".join(f"step {number} loss 2.{number}\n" for number in range(10, 20))
LATER = "".join(f"step {number} loss 1.{number}\n" for number in range(30, 40))
TRACE = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 7, in main\n    go()\n'
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
WATCHDOG = ("[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
            "SeqNum=8, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600008 milliseconds before timing out.\n")
FELL = ("E0102 03:04:05.678 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) "
        "local_rank: 0 (pid: 4242) of binary: /opt/env/bin/python\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n")
RESTART = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
LIMIT = "slurmstepd: error: *** JOB 8 ON n3 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
SCANCEL = "slurmstepd: error: *** JOB 8 ON n3 CANCELLED AT 2025-01-02T03:04:05 ***\n"
EXITED = "srun: error: n3: task 5: Exited with exit code 1\n"
XID = "Jan  2 03:04:05 n7 kernel: [8.1] NVRM: Xid (PCI:0000:4e:00): 79, pid=8, GPU has fallen off the bus.\n"
NAN = "".join(f"step {number} loss nan\n" for number in range(20, 30))
TAKEN = "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)\n"
IGNORED = "Exception ignored in atexit callback: <function flush at 0x7f>\n"
QUIET = "".join(f"worker {number} has read its shard and goes on with the next of them\n" for number in range(700))


@each(
    ("text", "category"),
    [
        (STEPS + TRACE + OOM + WATCHDOG + FELL, "cuda_oom"),
        (STEPS + WATCHDOG + TRACE + OOM + FELL, "cuda_oom"),
        (STEPS + WATCHDOG, "hang"),
        (STEPS + TRACE + OOM + LATER, "none"),
        (STEPS + TRACE + OOM + "step 20 loss 1.0\n" + FELL, "cuda_oom"),
        (STEPS + TRACE + OOM + FELL + RESTART + LATER + "Training finished.\n", "none"),
        (STEPS + TRACE + OOM + FELL + RESTART + LATER + TRACE + "KeyError: 'x'\n" + FELL, "user_code"),
        (STEPS + FELL, "unknown"),
        (STEPS + IGNORED + TRACE + "FileNotFoundError: [Errno 2] No such file or directory: '/x'\n", "none"),
        (STEPS + "--- Logging error ---\n" + TRACE + "OSError: [Errno 5] Input/output error\n", "none"),
        (STEPS + LIMIT, "time_limit"),
        ("ModuleNotFoundError: No module named 'apex'; go on without it\n" + STEPS + LIMIT, "time_limit"),
        (TRACE + "KeyError: 'x'\n" + EXITED + LIMIT, "user_code"),
        (TAKEN + EXITED + SCANCEL, "rendezvous"),
        (STEPS + SCANCEL, "cancelled"),
        (STEPS + NAN, "numerical"),
        (STEPS + "step 20 loss nan\n" + LATER, "none"),
        (STEPS + TRACE + "KeyError: 'x'\nTraining finished.\n", "user_code"),
        (STEPS + "WARNING: could not import apex: ModuleNotFoundError: No module named 'apex'\n" + QUIET + TRACE
         + "KeyError: 'x'\n" + FELL, "user_code"),
        (STEPS + "the flux capacitor failed\n", "unknown"),
        (STEPS + "0 errors, 0 failed\n", "none"),
        (STEPS, "none"),
        (STEPS + "Training finished.\n" + "sh: foo: command not found\n", "environment"),
        ("", "none"),
    ],
    ids=[
        "an OOM before its echo", "the echo was printed first", "an echo alone is a hang",
        "steps go on after a caught OOM", "one more step of another rank excuses nothing", "a restart that ends well",
        "only the last launch counts", "a launcher's report alone is no cause", "an ignored exception",
        "a line that could not be logged", "the time limit", "the limit outlives an early error",
        "a rank died and the others hung until the limit", "scancel after the failure", "scancel",
        "NaN up to the end", "one NaN and then none", "a script's echo behind a traceback",
        "a mention is no match for a traceback", "last words that no rule knows", "harmless last words", "healthy",
        "an error after the good end", "an empty log",
    ],
)
def test_the_category(text: str, category: str) -> None:
    assert judge_text(text).category == category


@each(
    ("first", "last", "category"),
    [
        ("KeyError: 'x'\n", OOM, "cuda_oom"),
        (OOM, "RuntimeError: training failed\n", "cuda_oom"),
        ("ModuleNotFoundError: No module named 'apex'\n", "ImportError: please install apex\n", "environment"),
        ("ValueError: bad shape\n", "RuntimeError: step failed\n", "user_code"),
    ],
    ids=["a vague one inside", "a vague one outside", "both clear: the inner", "both vague: the inner"],
)
@each("between", ["During handling of the above exception, another exception occurred:",
                                     "The above exception was the direct cause of the following exception:"])
def test_of_a_chain_the_one_that_says_most(first: str, last: str, category: str, between: str) -> None:
    verdict = judge_text(STEPS + TRACE + first + "\n" + between + "\n\n" + TRACE + last + FELL)
    assert verdict.category == category
    if category != "cuda_oom":
        assert verdict.cause is not None and verdict.cause.text == first.strip()


def test_the_same_error_of_many_ranks_is_one_cause() -> None:
    lines = "".join(f"[rank{rank}]: {line}\n" for rank in range(8) for line in (TRACE + OOM).splitlines())
    verdict = judge_text(STEPS + lines + FELL)
    assert verdict.cause is not None
    assert verdict.cause.ranks == tuple(range(8))
    assert verdict.rank == 0


def test_the_symptoms_are_folded() -> None:
    echoes = "".join(WATCHDOG.replace("rank3", f"rank{rank}") for rank in range(8))
    (symptom,) = [one for one in judge_text(STEPS + TRACE + OOM + echoes).symptoms if one.rule == "hang.watchdog"]
    assert symptom.count == 8
    assert len(symptom.ranks) == 8


def test_a_card_s_fault_suspects_its_node() -> None:
    verdict = judge_text(XID)
    assert (verdict.category, verdict.suspects, verdict.action) == ("gpu_hardware", ("n7",), "exclude_and_restart")


def test_the_same_fault_on_many_nodes_suspects_none() -> None:
    assert judge_text("".join(XID.replace(" n7 ", f" n{node} ") for node in range(4))).suspects == ()


def test_the_failed_node_is_not_the_first_of_the_step() -> None:
    text = ("srun: error: Node failure on n9\nslurmstepd: error: *** STEP 8.0 ON n1 CANCELLED AT 2025-01-02T03:04:05 "
            "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n")
    verdict = judge_text(STEPS + text)
    assert (verdict.category, verdict.host, verdict.suspects) == ("node_failure", "n9", ("n9",))


def test_the_launcher_names_the_rank_that_died() -> None:
    text = ("Root Cause (first observed failure):\n[0]:\n  time      : 2025-01-02_03:04:05\n  host      : n4\n"
            "  rank      : 13 (local_rank: 5)\n  exitcode  : -11 (pid: 4242)\n"
            "  traceback : Signal 11 (SIGSEGV) received by PID 4242\n")
    verdict = judge_text(STEPS + FELL + text)
    assert (verdict.category, verdict.host, verdict.rank) == ("native_crash", "n4", 13)


def test_a_rival_makes_the_verdict_less_sure_and_is_named() -> None:
    alone = judge_text(STEPS + TRACE + OOM + FELL)
    torn = judge_text(STEPS + TRACE + OOM + XID + FELL)
    assert torn.runner_up is not None
    assert torn.confidence < max(alone.confidence, 0.9)
    assert {torn.category, torn.runner_up.category} == {"cuda_oom", "gpu_hardware"}


def test_teardown_alone_gives_candidates() -> None:
    verdict = judge_text(STEPS + EXITED + FELL)
    assert verdict.category == "unknown"
    assert [one.rule for one in verdict.candidates]
    assert verdict.rank == 5


def test_the_user_s_own_frame_is_named() -> None:
    text = ('Traceback (most recent call last):\n  File "/home/u/train.py", line 7, in main\n    go()\n  File '
            '"/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 80, in _call_impl\n    x()\n'
            "TypeError: forward() takes 2 positional arguments but 3 were given\n")
    assert judge_text(text + FELL).place == "/home/u/train.py:7 in main"


def test_an_assertion_that_a_gpu_prints_has_the_place_of_the_exception_that_tells_of_it() -> None:
    asserts = "a/Indexing.cu:1515: select: block: [0,0,0], thread: [0,0,0] Assertion `src < size` failed.\n"
    told = TRACE + "torch.AcceleratorError: CUDA error: device-side assert triggered\n"
    verdict = judge_text(STEPS + asserts + told + FELL)
    assert (verdict.rule, verdict.place) == ("gpu.device_assert_line", "/home/u/train.py:7 in main")
    assert verdict.cited[1].text.endswith("device-side assert triggered")
    assert judge_text(STEPS + asserts + FELL).place == ""


def test_the_fingerprint_knows_no_node_rank_or_address() -> None:
    def mark(rank: int, shard: str) -> str:
        lines = (TRACE + f"KeyError: '{shard}'\n").splitlines()
        return judge_text(STEPS + "".join(f"[rank{rank}]: {line}\n" for line in lines) + FELL).fingerprint

    assert mark(3, "shard-0017 of gpu-012") == mark(9, "shard-0399 of gpu-344") != ""


def test_steps_of_another_file_excuse_nothing_without_a_clock() -> None:
    assert judge_text(TRACE + OOM + FELL, STEPS + LATER).category == "cuda_oom"


def stamped(minute: int, second: int = 0) -> str:
    return f"2025-01-02 03:{minute:02d}:{second:02d} "


def steps_at(minute: int, *, first: int = 10, every_s: int = 5, who: str = "") -> str:
    """Ten steps, from the minute on."""
    return "".join(f"{who}{stamped(minute, number * every_s)}step {first + number} loss 2.1\n" for number in range(10))


ERROR = "{} ERROR: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def test_steps_on_a_clock_that_nothing_ties_to_the_error_s_excuse_nothing() -> None:
    error = stamped(1) + "worker starts\n" + ERROR.format(stamped(1, 5)) + FELL
    steps = steps_at(8, first=30)
    assert judge_text(error, steps, clock=CLOCK_STAMPS).category == "gpu_hardware"


def test_steps_of_another_file_excuse_an_error_where_common_steps_tie_the_clocks() -> None:
    error = steps_at(1) + ERROR.format(stamped(2, 5)) + stamped(2, 6) + "the batch is skipped\n"
    steps = steps_at(1) + steps_at(8, first=30)
    assert judge_text(error, steps, clock=CLOCK_STAMPS).category == "none"


def test_steps_hours_later_excuse_an_error_on_any_clock() -> None:
    error = stamped(1) + "worker starts\n" + ERROR.format(stamped(1, 5))
    steps = steps_at(8, first=30).replace(" 03:", " 09:")
    assert judge_text(error, steps, clock=CLOCK_STAMPS).category == "none"


def test_steps_that_another_host_wrote_late_do_not_excuse_what_ended_the_run() -> None:
    error = f"[n1:0]:{TRACE}[n1:0]:{OOM}".replace("\n  File", "\n[n1:0]:  File").replace("\n    go", "\n[n1:0]:    go")
    late = steps_at(1, every_s=2, who="[n2:8]:")
    sure = judge_text(error + FELL)
    unsure = judge_text(late[:len(late) // 2] + error + late[len(late) // 2:] + FELL)
    assert (sure.category, unsure.category) == ("cuda_oom", "cuda_oom")
    assert unsure.confidence < min(0.8, sure.confidence)


@each(("error_s", "who"), [(5, "[n2:8]:"), (2, "[n1:0]:")], ids=["for a minute", "of the same host"])
def test_steps_that_went_on_excuse_an_error_though_the_run_fell_later(error_s: int, who: str) -> None:
    error = f"[n1:0]:{TRACE}[n1:0]:{OOM}".replace("\n  File", "\n[n1:0]:  File").replace("\n    go", "\n[n1:0]:    go")
    steps = steps_at(1, every_s=error_s, who=who)
    assert judge_text(steps_at(0, first=0, who=who) + error + steps + FELL).category == "unknown"


@each(("end", "category"), [(LIMIT, "time_limit"), (SCANCEL, "cancelled")], ids=["limit", "scancel"])
def test_lines_that_come_behind_slurm_s_own_end_of_the_job_do_not_excuse_it(end: str, category: str) -> None:
    assert judge_text(STEPS + end + LATER + FELL).category == category


def test_the_task_that_srun_reports_first_is_where_it_began() -> None:
    reports = EXITED + EXITED.replace("n3", "n8").replace("task 5", "task 6")
    verdict = judge_text(STEPS + TRACE + "KeyError: 'x'\n" + reports)
    assert (verdict.category, verdict.host, verdict.rank) == ("user_code", "n3", 5)


def test_a_task_of_srun_that_runs_torchrun_is_no_rank() -> None:
    ended = FELL.replace("local_rank: 0", "local_rank: 2").replace("exitcode: 1)", "exitcode: -11)")
    verdict = judge_text(STEPS + ended + EXITED)
    assert (verdict.category, verdict.host, verdict.rank) == ("native_crash", "n3", 2)


def test_a_traceback_s_line_of_source_is_no_message() -> None:
    text = TRACE.replace("go()", 'raise ValueError("CUDA out of memory. Tried to allocate " + size)')
    assert judge_text(STEPS + text + "KeyError: 'size'\n" + FELL).category == "user_code"


def test_a_module_that_did_not_load_at_the_start_gives_way_to_what_ended_the_run() -> None:
    text = "Lmod has detected the following error: These module(s) exist but cannot be loaded as requested\n"
    assert judge_text(text + STEPS + QUIET + TRACE + OOM + FELL).category == "cuda_oom"


def test_a_decoder_that_fails_below_the_loader_is_the_data() -> None:
    text = ('Traceback (most recent call last):\n  File "/home/u/train.py", line 7, in main\n    for x in loader:\n'
            '  File "/opt/env/site-packages/torch/utils/data/_utils/worker.py", line 80, in _worker_loop\n'
            "    data = fetcher.fetch(index)\nPIL.UnidentifiedImageError: cannot identify image file '/data/7.jpg'\n")
    assert judge_text(STEPS + text + FELL).category == "data"


def test_a_tracker_s_thread_that_dies_after_the_end_is_no_failure() -> None:
    thread = "Exception in thread NetStatThr:\n" + TRACE + "BrokenPipeError: [Errno 32] Broken pipe\n"
    assert judge_text(STEPS + "Training finished.\n" + thread).category == "none"


def test_an_xid_of_a_slice_of_a_card_suspects_its_node() -> None:
    verdict = judge_text(STEPS + XID.replace("4e:00):", "4e:00 GPU-I:05):"))
    assert (verdict.category, verdict.suspects) == ("gpu_hardware", ("n7",))


def test_a_row_that_was_remapped_suspects_its_node_and_explains_no_error_of_the_program() -> None:
    remapped = XID.replace("79, pid=8, GPU has fallen off the bus.", "63, pid=8, Row Remapper: New row marked")
    alone, beside = judge_text(STEPS + remapped + FELL), judge_text(STEPS + TRACE + "KeyError: 'x'\n" + remapped + FELL)
    assert (alone.category, alone.suspects, alone.confidence < 0.7) == ("gpu_hardware", ("n7",), True)
    assert (beside.category, beside.suspects) == ("user_code", ())


def test_a_step_that_srun_ends_after_a_task_failed_was_not_cancelled() -> None:
    text = EXITED + "slurmstepd: error: *** STEP 8.0 ON n1 CANCELLED AT 2025-01-02T03:04:05 ***\n"
    verdict = judge_text(STEPS + text)
    assert (verdict.category, verdict.host, verdict.rank) == ("unknown", "n3", 5)


def test_the_line_about_the_rank_that_failed_first_is_cited() -> None:
    one = "  host      : n4\n  rank      : {0} (local_rank: {0})\n  exitcode  : -11 (pid: {1})\n"
    text = ("Failures:\n[1]:\n" + one.format(1, 6175) + "Root Cause (first observed failure):\n[0]:\n"
            + one.format(0, 6174))
    verdict = judge_text(STEPS + FELL + text)
    assert verdict.cause is not None and "6174" in verdict.cause.text
    assert verdict.rank == 0


def test_the_store_below_torchrun_is_no_fault_of_the_program() -> None:
    text = ('Traceback (most recent call last):\n  File "/opt/env/site-packages/torch/distributed/elastic/'
            'rendezvous/c10d_rendezvous_backend.py", line 113, in _call_store\n    return getattr(self._store, op)()\n'
            "RuntimeError: Broken pipe\n")
    assert judge_text(STEPS + text + FELL).category == "rendezvous"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([STEPS, LATER, TRACE, OOM, WATCHDOG, FELL, RESTART, LIMIT, SCANCEL, EXITED, XID, NAN,
                                 IGNORED, "Training finished.\n", "\x00\xff\n", "Killed\n"]), max_size=9))
def test_any_order_of_lines_has_a_verdict(pieces: list[str]) -> None:
    verdict = judge_text("".join(pieces))
    assert 0 <= verdict.confidence <= 1
    assert verdict.category
    assert verdict.category in ("none", "unknown") or verdict.cause is not None


BAR = "".join(f"\r 12%|#2        | {number}/1000 [00:10<01:00, 2.71it/s]" for number in range(100, 120))
TABLE = "".join(f"| layer {number:4d} | {number * 7 % 97:6d} | {number * 3 % 89:6d} |\n" for number in range(1400))


@each("text", [
    BAR + "\n" + TRACE + "KeyError: 'x'\n" + TABLE, BAR + TRACE + "KeyError: 'x'\n" + TABLE,
    STEPS + TRACE + "ValueError: x\n" + TABLE, STEPS + TRACE + "AppError: x\n" + TABLE + TABLE,
], ids=["behind a progress bar", "at the end of the bar's own line", "behind steps", "of an unknown type"])
def test_nothing_is_called_well_behind_an_exception(text: str) -> None:
    assert len(TABLE) > 36_000
    verdict = judge_text(text)
    assert verdict.category == "user_code" and verdict.confidence <= 0.5, verdict


def test_prolog_that_fails_on_a_node_stands_before_the_cancel_that_follows_and_names_the_node() -> None:
    verdict = judge_text(f"slurmstepd-n0: error: Prolog failure on node n1\n{SCANCEL}")   # 22.05 and 24.11, recorded
    assert (verdict.category, verdict.host, verdict.suspects) == ("node_failure", "n1", ("n1",)), verdict

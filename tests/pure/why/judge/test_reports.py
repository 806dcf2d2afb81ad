"""Reports of launchers on processes that ended: read for their fields, never taken for the cause."""

from __future__ import annotations

from tests.pure.why.judged import judge_text
from tests.tables import each

BOX, DASHES = "=" * 60 + "\n", "-" * 60 + "\n"
ELASTIC = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + BOX + "train.py FAILED\n" + DASHES
ROOT = ("Root Cause (first observed failure):\n[0]:\n  time      : 2024-05-03_10:22:10\n  host      : n004\n"
        "  rank      : 5 (local_rank: 1)\n  exitcode  : {} (pid: 2231)\n"
        "  error_file: /tmp/torchelastic_ab/none_x/attempt_0/1/error.json\n  traceback : {}\n" + BOX)
OTHERS = ("Failures:\n[1]:\n  time      : 2024-05-03_10:22:11\n  host      : n005\n  rank      : 8 (local_rank: 0)\n"
          "  exitcode  : -15 (pid: 2240)\n  error_file: <N/A>\n  traceback : Signal 15 (SIGTERM) received by PID 2240\n"
          + DASHES)
SEE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
INNER = ("Traceback (most recent call last):\n    File \"/a/train.py\", line 14, in main\n      vocab = table[name]\n"
         "  KeyError: 'tokenizer.model'\n  ")
PRTE = ("prterun detected that one or more processes exited with non-zero status,\nthus causing the job to be "
        "terminated. The first process to do so was:\n\n   Process name: [{}]\n   Exit code:    3\n")
NOTICED = "prterun noticed that process rank 3 with PID 2231 on node n004 exited on\nsignal {}.\n"
BAD = ("=" * 80 + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   {}PID 2231 RUNNING AT n004\n=   {}\n"
       + "=" * 80 + "\n")
STRING = ("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {}\n"
          "This typically refers to a problem with your application.\n")
SPAWN = "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code 3\n"
FRAME = 'Traceback (most recent call last):\n  File "/a/t.py", line 3, in f\n    run()\n'
DEEPSPEED = ("[2024-05-03 10:22:12,402] [ERROR] [launch.py:322:sigkill_handler] ['/opt/python', '-u', 'train.py', "
             "'--local_rank=3'] exits with return code = 1\n")
HOROVOD = ("RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the "
           "job to be terminated. The first process to do so was:\nProcess name: 3\nExit code: 1\n")


@each("text, category, host, rank", (
    (ELASTIC + ROOT.format(1, SEE), "unknown", "n004", 5),
    ("E0503 10:22:12.402000 2230 api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 2231) of binary: /opt/python\n" +
     ELASTIC + ROOT.format(1, SEE), "unknown", "n004", 5),
    (ELASTIC + OTHERS + ROOT.format(1, SEE), "unknown", "n004", 5),
    (ELASTIC + OTHERS + ROOT.format(-11, "Signal 11 (SIGSEGV) received by PID 2231"), "native_crash", "n004", 5),
    (ELASTIC + OTHERS + ROOT.format(-9, "Signal 9 (SIGKILL) received by PID 2231"), "host_oom", "n004", 5),
    (DASHES + PRTE.format("prterun-n001-2231@1,3") + DASHES, "unknown", None, 3),
    (DASHES + PRTE.format("[22171,1],3").replace("prterun", "mpirun") + DASHES, "unknown", None, 3),
    (DASHES + NOTICED.format("11 (Segmentation fault)") + DASHES, "native_crash", "n004", 3),
    (DASHES + NOTICED.format("9 (Killed)") + DASHES, "host_oom", "n004", 3),
    (DASHES + NOTICED.format("15 (Terminated)") + DASHES, "unknown", "n004", 3),
    (BAD.format("", "EXIT CODE: 2"), "unknown", "n004", None),
    (BAD.format("RANK 3 ", "KILLED BY SIGNAL: 9 (Killed)"), "host_oom", "n004", 3),
    (BAD.format("", "EXIT CODE: 9") + STRING.format("Killed (signal 9)"), "host_oom", "n004", None),
    (BAD.format("", "EXIT CODE: 139") + STRING.format("Segmentation fault (signal 11)"), "native_crash", "n004", None),
    ("x10.site: rank 37 exited with code 1\nx10.site: rank 38 died from signal 15\n", "unknown", "x10.site", 37),
    ("[rank: 1] Child process with PID 2231 terminated with code -11. Forcefully terminating all other processes to "
     "avoid zombies\n", "native_crash", None, 1),
    ("[rank: 1] Child process with PID 2231 terminated with code 1. Forcefully terminating all other processes to "
     "avoid zombies\n./run.sh: line 4:  2230 Killed                  python train.py\n", "unknown", None, 1),
    (FRAME + SPAWN, "unknown", None, 2),
    (DEEPSPEED, "unknown", None, 3),
    (FRAME + HOROVOD, "unknown", None, 3),
    ("Process 3 exit with status code 1.\nTerminating remaining workers after failure of Process 3.\n", "unknown",
     None, 3),
    (FRAME + "subprocess.CalledProcessError: Command '['/opt/python', 'train.py']' died with <Signals.SIGKILL: 9>.\n",
     "host_oom", None, None),
    ("rank 3 in job 1  n001_2231   caused collective abort of all ranks\n  exit status of rank 3: killed by signal 9\n",
     "host_oom", None, 3),
))
def test_a_report_alone_gives_the_place_and_no_cause(text: str, category: str, host: str | None,
                                                     rank: int | None) -> None:
    verdict = judge_text("reading the mesh\n" + text)
    assert (verdict.category, verdict.host, verdict.rank) == (category, host, rank), verdict
    assert rank is None or f"rank {rank}" in verdict.summary or verdict.rule or "the log tells" in verdict.summary
    assert (verdict.confidence <= 0.6 or category == "native_crash") and "error_file" not in verdict.summary


@each("report, rank", (
    (ELASTIC + OTHERS + ROOT.format(1, SEE), 5), (DASHES + PRTE.format("prterun-n001-2231@1,3") + DASHES, 3),
    (BAD.format("RANK 3 ", "EXIT CODE: 2"), 3), (FRAME + SPAWN, 2), (DEEPSPEED, 3),
))
def test_a_statement_before_a_report_is_the_cause_and_the_report_its_place(report: str, rank: int) -> None:
    verdict = judge_text("/a/out.h5: write failed: No space left on device\n" + report)
    assert (verdict.category, verdict.rank) == ("storage", rank), verdict


def test_a_report_gives_the_rank_of_a_host_that_another_line_names() -> None:
    said = "[n004:2231] *** Process received signal ***\n[n004:2231] Signal: Segmentation fault (11)\n"
    for host, rank in (("n004", 3), ("n005", None)):
        verdict = judge_text(said + DASHES + NOTICED.replace("n004", host).format("11 (Segmentation fault)") + DASHES)
        assert (verdict.host, verdict.rank) == ("n004", rank), verdict


def test_the_first_report_is_not_of_a_rank_that_the_launcher_ended() -> None:
    verdict = judge_text("n8: rank 3 died from signal 15\nn7: rank 2 exited with code 1\nn9: rank 4 exited with "
                         "code 1\n")
    assert (verdict.host, verdict.rank) == ("n7", 2)


def test_steps_behind_a_report_excuse_it() -> None:
    text = "n7: rank 2 exited with code 1\n" + "".join(f"step {step}/100 loss 2.1\n" for step in range(20))
    assert judge_text(text).category == "none"


def test_the_traceback_inside_torchrun_s_box_is_read() -> None:
    verdict = judge_text(ELASTIC + OTHERS + ROOT.format(1, INNER))
    assert (verdict.category, verdict.host, verdict.rank) == ("user_code", "n004", 5), verdict
    assert verdict.evidence == ("KeyError: 'tokenizer.model'",) and verdict.place == "/a/train.py:14 in main"

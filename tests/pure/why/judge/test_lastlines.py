"""Last words that no rule knows: read by their words where they are plain, shown where they are not, never sure."""

from __future__ import annotations

from safelaunch.why.judge.lastlines import MOST_WEIGHT
from safelaunch.why.weigh.words import sound_of
from tests.pure.why.judged import judge_text
from tests.tables import each

STEPS = "\n".join(f"step {step} loss 2.{step}" for step in range(10, 14))
FALL = "srun: error: n3: task 2: Exited with exit code 1"


@each(
    ("words", "category"),
    [
        ("blobstore: flush of the volume failed, disk is full", "storage"),
        ("fabric: transmit timed out, peer unreachable", "network"),
        ("the trainer died: gradients are not finite", "numerical"),
        ("loader: cannot decode sample 17 of the dataset", "data"),
        ("launcher: unknown option 'foo' in the configuration: invalid", "config"),
    ],
)
def test_plain_words_before_a_fall_give_a_category_that_is_not_sure(words: str, category: str) -> None:
    verdict = judge_text(f"{STEPS}\n{words}\n{FALL}\n")
    assert verdict.category == category
    assert verdict.confidence <= MOST_WEIGHT < 0.8
    assert verdict.cause is not None and verdict.cause.text == words


def test_a_reading_by_words_names_them() -> None:
    verdict = judge_text(f"{STEPS}\nfabric: transmit timed out, peer unreachable\n{FALL}\n")
    assert "unreachable" in verdict.changes


def test_an_unsure_reading_of_an_exception_has_another_one_beside_it() -> None:
    verdict = judge_text("RuntimeError: INTERNAL: load of the module failed on cores 0-2: status=1\n")
    assert verdict.confidence < 0.5 and verdict.runner_up is not None, verdict
    assert verdict.runner_up.category not in (verdict.category, "none", "unknown", "echo", "teardown")
    assert verdict.runner_up.confidence <= verdict.confidence


def test_a_line_that_a_program_calls_an_error_is_heard() -> None:
    verdict = judge_text(f"{STEPS}\nERROR the manifest of the checkpoint is corrupt\n{FALL}\n")
    assert verdict.category == "checkpoint"


def test_words_before_later_steps_are_not_heard() -> None:
    verdict = judge_text(f"cannot write: disk is full, volume failed\n{STEPS}\n{FALL}\n")
    assert verdict.category == "unknown"


def test_words_that_a_program_says_before_it_ends_well_are_not_heard() -> None:
    verdict = judge_text(f"{STEPS}\nfailed to flush metrics: disk is full\nTraining completed successfully\n")
    assert verdict.category == "none"


def test_what_scontrol_shows_of_the_job_at_the_end_of_a_script_is_no_word_of_a_failure() -> None:
    shown = "   Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0"
    assert judge_text(f"{STEPS}\n{FALL}\n{shown}\n").category == "unknown"


def test_words_of_two_kinds_are_shown_and_not_read() -> None:
    assert sound_of("something failed") == ("", 0.0)
    assert judge_text(f"{STEPS}\nthe frobnicator failed\n").category == "unknown"


def test_an_exit_that_nothing_explains_is_no_health() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    sys.exit(3)\nSystemExit: 3'
    assert judge_text(f"{STEPS}\n{trace}\n").category == "unknown"
    assert judge_text(f"{STEPS}\n{trace}\n" + "a row of a table\n" * 3000).category == "unknown"


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in main\n    go()\nKeyError: \'x\''


@each(("label", "category"), [("[n0:0]:", "user_code"), ("[n0:0]: ", "user_code"),
                                                 ("{n0} ", "unknown"), ("@@ ", "unknown")])
def test_a_traceback_behind_labels_that_nobody_knows_is_no_health(label: str, category: str) -> None:
    assert judge_text("".join(f"{label}{line}\n" for line in f"{STEPS}\n{TRACE}".splitlines())).category == category


@each("line, category", (
    ("libfabric:16642:1701636928::cxi:core:cxip_cq_eq_progress():531<warn> x4204c1s3b0n0: Cassini Event Queue overflow "
     "detected.", "network"),
    ("libfabric:811:1701985650:psm3:core:recv():90<warn> n7: completion queue overflow, packets of it were dropped",
     "network"),
    ("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0", "none"),
    ("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768", "none"),
))
def test_a_full_queue_of_a_card_is_a_failure_and_a_skipped_step_is_none(line: str, category: str) -> None:
    verdict = judge_text(f"{line}\n")
    assert verdict.category == category, verdict
    assert category == "none" or verdict.confidence < 0.8


BOX = "-" * 74 + "\n"
STACK = "*** Check failure stack trace: ***\n" + "    @     0x7f4258c40634  absl::log::SendToLog()\n" * 9


@each("text, category, said", (
    # What mpirun frames is an error, whatever its words.
    (f"{BOX}An unrecognized option was included on the mpirun command line:\n\n  Option: --by-nodes\n\nPlease use "
     f"--help for\nsupported options.\n{BOX}", "config", "unrecognized option"),
    (f"loading\n{BOX}The coupler gave up on the third component.\n{BOX}", "unknown", "gave up"),
    # What explains is not what is stated: the advice names options.
    (f"{BOX}The service of the mesh on this volume ended: no space is left to write.\nPlease check the option --mesh "
     f"of the command line,\nand unset MESH_CONFIG in the configuration.\n{BOX}", "storage", "no space"),
    # Frames of a crash handler are no last words.
    ("F1129 09:16:16.782204 27875 client.h:80] Terminating process because the service detected fatal errors: the "
     "connection was refused by the peer\n" + STACK, "network", "Terminating"),
    ("F1129 09:16:16.782204 27875 client.h:80] gave up: the connection was refused by the peer\n"
     + STACK.replace("    @", "logging.cc:474:     @"), "network", "gave up"),
    # Nor are those of any language, and what stands before them tells why.
    ("Fortran runtime error: Bad integer for item 1 in list input\n\nError termination. Backtrace:\n#0  0x7f95 in ???\n"
     "#6  0x55c7 in m\n\tat /a/m.f90:5\n", "config", "Bad integer"),
    ("FATAL ERROR: Reached heap limit JavaScript heap out of memory\n----- Native stack trace -----\n"
     + "".join(f" {k}: 0x10c78d6 v8::internal::Heap{k}() [node]\n" for k in range(9)) +
     "job.sh: line 1: 16335 Aborted                 node a.js\n", "host_oom", "heap"),
    # Behind steps, and without a word of a failure in the runtime's own line.
    ("".join(f"step {k} loss 2.1\n" for k in range(9)) + "thread 'main' (7) panicked at m.rs:1:5:\nindex out of "
     "bounds: the len is 4 but the index is 4\n", "user_code", "panicked"),
    ("step 1 loss 2.1\nJob completed successfully, but some output files are missing\n", "storage", "missing"),
    # A statement counts before the launcher's word that the step was cancelled.
    ("ERROR on proc 617: Failed to reallocate 1650272 bytes for array comm:buf_send\nsrun: Job step aborted: Waiting "
     "up to 32 seconds for job step to finish.\nslurmstepd: error: *** STEP 24.1 ON h053 CANCELLED AT "
     "2022-11-15T09:38:39 ***\n", "host_oom", "proc 617"),
    # A message goes on with what it announces.
    ("Cannot find primary config 'trian'. Check that it's in your config search path.\n\nConfig search path:\n"
     "\tprovider=a, path=pkg://a\n\tprovider=b, path=file:///b\n\tprovider=c, path=c://\n\nSet the environment "
     "variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n", "config", "primary config"),
    ("Error executing job with overrides: []\nError locating target 'optim.AdamX', set env var HYDRA_FULL_ERROR=1 to "
     "see chained exception.\nfull_key: opt\n", "config", "locating target"),
))
def test_messages_at_the_end_of_a_log_are_read_whole(text: str, category: str, said: str) -> None:
    verdict = judge_text(text)
    assert verdict.category == category and said in verdict.summary, verdict

"""A log without a failure: it ended well, it is alive, or nobody can tell; and ends that are none of these."""

from __future__ import annotations

import pytest

from tests.pure.why.judged import judge_text
from tests.tables import each

START = "loading the model\nbuilding the optimizer\n"
STEPS = "".join(f"step {number}/1000 loss 2.1\n" for number in range(10, 20))
CAUGHT = 'Traceback (most recent call last):\n  File "/a/x.py", line 3, in send\n    raise OSError(2)\nOSError: 2\n'
OPEN = START + "Traceback (most recent call last):\n"


@each("text, sure, action, said", (
    (START + STEPS + "Training completed successfully\n", 0.75, "none", "finished; its last step or epoch is 19"),
    (START + STEPS, 0.8, "none", "steps were made up to the end; its last step or epoch is 19"),
    (START + STEPS + "saving\nuploading\nwaiting for the queue\n", 0.7, "none", "steps were made up to the end"),
    (START + "".join(f"tokenized shard {number} of the corpus\n" for number in range(5)), 0.8, "none",
     "step or epoch is 4"),
    (START + "".join(f"part {number}/90 is read\n" for number in range(5)), 0.8, "none", "step or epoch is 4"),
    (START + STEPS.replace("loss", "errors=0, loss"), 0.8, "none", "step or epoch is 19"),
    (START + "This run was terminated on: 10:11:12  11Mar2025\n=---=\n  JOB DONE.\n=---=\n", 0.6, "none", "a good end"),
    ("slurmstepd: error: *** JOB 8 ON n3 CANCELLED AT 2025-03-11T09:00:00 DUE TO PREEMPTION ***\n" + START + STEPS, 0.8,
     "none", "step or epoch is 19"),
    (START + "/home/u/t.py:4: UserWarning: CUDA out of memory is only said\n  warnings.warn('CUDA out of memory')\n"
     "===== 3 passed, 1 warning in 4.71s =====\n", 0.6, "none", "a good end"),
    (START + "ERROR 04-02 06:11:53 [a.py:2] ValueError: the prompt is too long\n"
     + 'INFO: 10.0.0.1:80 - "POST /v1/chat HTTP/1.1" 200 OK\n' * 2, 0.6, "none", "answers"),
    (START + "INFO:     Application startup complete.\n", 0.6, "none", "ready"),
    (START + 'INFO: 10.0.0.1:80 - "POST /v1/chat HTTP/1.1" 200 OK\n', 0.6, "none", "answers"),
    (START + "Server listening on 0.0.0.0:8000\n", 0.6, "none", "ready"),
    (START + "Server listening on 0.0.0.0:8000\nwaiting\n", 0.6, "none", "ready"),
    (START + "===== 211 passed in 3.10s =====\n", 0.6, "none", "a good end"),
    (START + "Done.\n", 0.6, "none", "a good end"),
    (START + "Tokenizer saved\n", 0.3, "look", "no failure seen"),
    (START, 0.3, "look", "no failure seen"),
    (START + "INFO 08-03 15:22:15 [x.py:1] the ERROR handler is set\n", 0.3, "look", "no failure seen"),
    (START + "process 17 exited normally\n", 0.3, "look", "no failure seen"),
    (START + "12 tests, 0 failed\n", 0.3, "look", "no failure seen"),
    (START + "E0000 00:00:17.123456 42 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register "
     "factory for plugin cuDNN when one has already been registered\n", 0.3, "look", "no failure seen"),
    ("".join(f"[rank0]: phase {number} of the plan\n" for number in range(8)), 0.3, "look", "no failure seen"),
    (START + "WARNING: cannot find a cache, it is made\n", 0.3, "look", "no failure seen"),
    (START + "gcc -c -o error_handler.o error_handler.c\n", 0.3, "look", "no failure seen"),   # a name is no predicate
    # Errors that somebody caught: it goes on as before, counts its work, or only quotes them in a warning.
    (START + "sent batch 1\nERROR: lost batch 2\n" + CAUGHT + "sent batch 3\nsent batch 4\n", 0.8, "none",
     "step or epoch is 4"),
    (START + CAUGHT + "restarting the rule\n2 of 2 steps (100%) done\n", 0.3, "look", "no failure seen"),
    (START + "fit failed with the following error:\n" + CAUGHT + "\n  warnings.warn(some_failed, Warned)\nbest 0.9\n",
     0.3, "look", "no failure seen"),
    (START + "ERROR | could not delete step-800: [Errno 39] Directory not empty: 'ckpt/step-800'\n"
     + "INFO  | saved\n" * 3, 0.3, "look", "no failure seen"),
    (START + "/env/lib/python3.11/site-packages/lib/loop.py:302: Couldn't infer the batch size\n", 0.3, "look",
     "no failure seen"),
))
def test_health_is_said_as_far_as_there_is_evidence_for_it(text: str, sure: float, action: str, said: str) -> None:
    verdict = judge_text(text)
    assert verdict.category == "none" and said in verdict.summary, verdict
    assert (verdict.confidence, verdict.action) == (sure, action)
    assert text.endswith(f"{verdict.cited[-1].text}\n")   # the last line, whatever tells


@each("text, category", (
    (OPEN, "unknown"),
    (STEPS + OPEN, "unknown"),
    (STEPS + OPEN + '  File "/a/train.py", line 3, in <module>\n    main()\n', "unknown"),
    (OPEN + '  File "/a/train.py", line 3, in main\n    model.load_state_dict(torch.load(path))\n'
     '  File "/env/lib/python3.11/site-packages/torch/serialization.py", line 3, in load\n', "checkpoint"),
    (START + "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/a/tra", "unknown"),
    (OPEN + '  File "/a/train.py", line 3, in <module>\n    main()\nwandb: syncing\nwandb: done\n', "unknown"),
    (START + "foo | Traceback (most recent call last):\nfoo |   File \"/a/tra", "unknown"),
    (START + "E0102 03:04:05.123456 4242 solver.cpp:80] gave up\n", "unknown"),
    (START + "[rank3]: gave up\n", "unknown"),
    (START + "ERROR:mypackage:gave up\n", "unknown"),
    (START + "".join(f"overflow, setting loss scale to: {2.0 ** -number}\n" for number in range(9)) +
     "Traceback (most recent call last):\n", "numerical"),
))
@pytest.mark.parametrize("end", ("", "\n"))
def test_an_end_amid_an_error_is_no_health(text: str, category: str, end: str) -> None:
    verdict = judge_text(text + end)
    assert verdict.category == category, verdict
    assert verdict.confidence < 0.6 and verdict.action != "none"


def test_a_traceback_that_was_left_open_before_many_steps_is_no_end() -> None:
    assert judge_text(OPEN + STEPS * 3).category == "none"

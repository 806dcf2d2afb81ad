"""Whether a log's failure is about loading a checkpoint: words of loading, or a traceback that has none."""

from __future__ import annotations

from safelaunch.checkpoints.loading import judge_loading
from tests.tables import each

HEAD = '[n1:0]:Traceback (most recent call last):\n[n1:0]:  File "/home/u/train.py", line 3, in <module>\n'
IMPORT_FRAMES = '  File "<frozen importlib._bootstrap>", line 1007, in _find_and_load\n'
TORCHRUN = ('Traceback (most recent call last):\n  File "/opt/venv/bin/torchrun", line 8, in <module>\n'
            "    sys.exit(load_entry_point('torch==2.4', 'console_scripts', 'torchrun')())\n"
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n")
ROWS: dict[str, tuple[str, bool | None]] = {
    "an edit that raises at import": (HEAD + "    rate = 1 / 0\nZeroDivisionError: division by zero\n", False),
    "a name that is not defined": (HEAD + "    main(argz)\nNameError: name 'argz' is not defined\n", False),
    "a syntax error": ('  File "/home/u/train.py", line 9\n    if x\n        ^\nSyntaxError: expected \':\'\n', False),
    "a module that is missing": (HEAD + IMPORT_FRAMES + "ModuleNotFoundError: No module named 'apex'\n", False),
    "a function of loading that cannot be imported": (
        HEAD + "    from lib import load_checkpoint\nImportError: cannot import name 'load_checkpoint'\n", False),
    "the same, below torchrun": (HEAD + "    main(argz)\nNameError: name 'argz'\n" + TORCHRUN, False),
    "with the command line before it": (
        "+ python train.py --resume ckpt/step_60.pt\n" + HEAD + "    main(argz)\nNameError: name 'argz'\n", False),
    "an argument that is not known": (
        "usage: train.py [-h] [--load LOAD]\n"
        "train.py: error: unrecognized arguments: --resume ckpt/step_60.pt\n", False),
    "its data loader": (HEAD + "    loader = DataLoader(load_dataset(x))\nValueError: no shards\n", False),
    "torch.load": (HEAD + "    state = torch.load(path)\nRuntimeError: PytorchStreamReader failed\n", True),
    "keys that do not fit": (HEAD + "    model.load_state_dict(state['model'])\nRuntimeError: size mismatch\n", True),
    "a key that is missing in it": (HEAD + "    begin = ckpt['step'] + 1\nKeyError: 'step'\n", True),
    "an error that names the file": (HEAD + "    run()\nValueError: ckpt/step_60.pt: bad header\n", True),
    "a failure behind a line that says that it resumes": (
        "resuming from ckpt/step_60.pt\n" + HEAD + "    check(x)\nAssertionError\n", True),
    "=> loaded": ("=> loaded checkpoint (epoch 3)\n" + HEAD + "    check(x)\nAssertionError\n", True),
    "killed without a word": ("", None),
    "killed after other words": ("world size 8\n[n1:0]:Segmentation fault\n", None),
}


@each("name", ROWS)
def test_a_failure_judge_loading_where_its_words_are(name: str) -> None:
    text, expected = ROWS[name]
    assert judge_loading(text.encode(), "ckpt/step_60.pt") is expected

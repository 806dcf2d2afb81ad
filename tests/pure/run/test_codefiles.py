"""Which files of the training are watched for edits between attempts."""

from __future__ import annotations

from safelaunch.run.codefiles import code_files, tell_changed
from tests.tables import each


@each(("command", "names"), [
    ("python -u train.py --config conf/base.yaml ${RESUME_ARGS}", ("train.py", "conf/base.yaml")),
    ("source venv/bin/activate && ./run.sh --lr 0.1", ("./run.sh",)),
    ("python $HOME/train.py --out ckpt/model.pt", ()), ("python -m mylib.train", ()),
    ("python /a/b.py x.pyc", ("/a/b.py",)),
])
def test_the_files_that_a_command_names(command: str, names: tuple[str, ...]) -> None:
    assert code_files(command) == names


def test_what_has_changed_is_one_sentence() -> None:
    assert tell_changed(["model.py"], 1) == "model.py has changed since attempt 1 began"
    assert tell_changed(list("abcdef"), 2) == "a, b, c, d and 2 more have changed since attempt 2 began"

"""What starts a node guard: `python3 -I -S -c TEXT ERRORS SHELL COMMAND…`; without arguments, whether this Python can.

The guard's text comes from elsewhere, and this Python may lack a module that it needs: the training starts then, too.
Python ignores SIGPIPE and SIGXFSZ, and exec would pass that on. Compiled code is read only by the Python that made it
(marshal checks nothing), and only whole (zlib has a checksum); else the text is compiled.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, NoReturn

if sys.version_info < (3, 9):
    sys.exit(1)
PRIVATE = ("SAFELAUNCH_BOOT", "SAFELAUNCH_GUARD", "SAFELAUNCH_GUARD_CODE", "SAFELAUNCH_TOKEN", "SAFELAUNCH_CONTROL",
           "SAFELAUNCH_ADDRESSES")


def tell(shell: int) -> None:
    """Signal the shell that the guard runs. It answers: a training that ends at the moment of that signal makes bash
    forget its exit code.
    """
    import _signal  # type: ignore[import-not-found, unused-ignore]
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGCONT,))
    os.kill(shell, _signal.SIGURG)
    _signal.sigtimedwait((_signal.SIGCONT,), 1)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


def compiled() -> CodeType:
    """The guard's code, or its text."""
    try:
        maker, _, packed = os.environ.get("SAFELAUNCH_GUARD_CODE", "").partition("\n")
        magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER.hex()
        if maker == magic + " " + sys.version.replace("\n", " "):
            import binascii
            import marshal
            import zlib
            code: CodeType = marshal.loads(zlib.decompress(binascii.a2b_base64(packed)))  # noqa: S302 - of our own leader
            return code
    except Exception:  # noqa: BLE001, S110 - another Python's, or damaged
        pass
    return compile(os.environ["SAFELAUNCH_GUARD"], "guard", "exec")


def train(words: list[str], error: BaseException) -> NoReturn:
    """Run the command without a guard."""
    sys.stderr.write("safelaunch: no node guard here: %r\n" % (error,))
    sys.stderr.flush()
    for name in PRIVATE:
        os.environ.pop(name, None)
    import signal
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(words[0], words)  # noqa: S606 - not a shell: the training itself


def main(errors: int, shell: int, words: list[str]) -> NoReturn:
    """Never returns."""
    if shell:
        tell(shell)
    os.dup2(errors, 2)
    os.close(errors)
    try:
        guard: dict[str, Any] = {"__name__": "guard"}
        exec(compiled(), guard)  # noqa: S102 - its text, from our own leader
        run = guard["main"]
    except BaseException as error:  # noqa: BLE001 - train without a guard
        train(words, error)
    code = run(words)
    if code < 0:   # by a signal
        if shell:   # which would tell of that signal in the output
            tell(shell)
        else:
            guard["end_by"](-code)
    os._exit(code if code >= 0 else 128 - code)   # at once: srun and the leader wait for it


if len(sys.argv) > 1:
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

"""Names in a shared directory as they are now, not as this host remembers them.

An NFS client believes what it knows of a directory's names, and of names that are not there. It does so for `acdirmin`
to `acdirmax` (30 to 60 s; nfs(5), "Directory entry caching"). A file that others made or replaced is seen that late,
and a journal is read without its newest writer. Once a client changes a directory itself, it asks the server anew.
"""

import os

from safelaunch.node.light import suppress


def see(*folders: str) -> None:
    """Forget what is remembered of the folders' names: a file is made in each, and removed at once.

    Where nothing can be made (full, read-only, somebody else's) it changes nothing. Blocks where the folder does.
    """
    for folder in folders:
        name = "%s/.look.%s.%d" % (folder, os.uname().nodename, os.getpid())
        with suppress(OSError):
            try:
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            finally:
                os.unlink(name)

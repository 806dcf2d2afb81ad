"""Accounting of a sandbox: slurmdbd on a MariaDB of its own, both on the machine `db`; no system service is touched.

The database is made anew for each sandbox by MariaDB's own bootstrap, 0.8 s on two cores, so nothing is cached. It
listens on a socket in the sandbox's folder only, where root enters by being root.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from safelaunch.errors import SandboxError
from safelaunch.sandbox.command import run_command
from safelaunch.sandbox.registry import RegisteredSandbox
from safelaunch.sandbox.users import USERS

ACCOUNT = "sl-project"
STORAGE = "slurm"
# MariaDB's own files, messages among them. 10.11 (Debian 12) calls them by MySQL's names, 11.8 (Debian 13) does not.
SHARES = {Path("/usr/share/mariadb"): "mariadb_system_tables", Path("/usr/share/mysql"): "mysql_system_tables"}
# No waiting for a disk: the database dies with its folder. But what was committed outlives a crash of MariaDB, hence 2.
# With 0 a crash forgets the last second, which slurmdbd has acknowledged (seen). The daemon complains below 64 MB of
# log and 900 s of waiting. Its complaint about memory stays, since a sandbox should not take a gigabyte for its tables.
TUNING = (
    "--innodb-log-file-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync", "--skip-log-bin",
    "--loose-innodb-snapshot-isolation=OFF",  # slurmdbd does not stand it (it says so); the default from 11.6 on
)  # fmt: skip


def render_slurmdbd_conf(entry: RegisteredSandbox, host: str, address: str) -> str:
    """slurmdbd.conf(5) of the sandbox; host and address are those of the machine `db`."""
    folder = entry.dir
    settings = {
        "DbdHost": host,
        "DbdAddr": address,
        "DbdPort": str(entry.dbd_port),
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",  # by socket: MYSQL_UNIX_PORT says which
        "StorageUser": "root",
        "StorageLoc": STORAGE,
        "LogFile": f"{folder}/log/slurmdbd.log",
        "PidFile": f"{folder}/run/slurmdbd.pid",
        # It listens on the address of its host's name only: that of `localhost`, where it has no network of its own.
        "CommunicationParameters": "NoInAddrAny",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def lay_out(entry: RegisteredSandbox, enter: list[str], host: str, address: str) -> None:
    """Make slurmdbd.conf and an empty database, with `enter` before MariaDB's command; SandboxError with what it said.
    """
    folder = Path(entry.dir)
    conf = folder / "slurmdbd.conf"
    conf.touch(mode=0o600)  # slurmdbd refuses one that others can read
    conf.write_text(render_slurmdbd_conf(entry, host, address))
    (folder / "db").mkdir(mode=0o700)
    for sub in ("data", "tmp"):
        (folder / "db" / sub).mkdir()
    # root enters through the socket and without a password (the plugin unix_socket); nobody else is known. With
    # MariaDB's client 11.8.9, slurmdbd 26.05 does not get over a database that is missing. It makes it, and the query
    # after that fails ("Number of columns in result (=1)" exceeds 0).
    made = "".join(f"create database {name};\n" for name in ("mysql", STORAGE))
    head = made + "use mysql;\nset @auth_root_socket='root';\nset @skip_auth_anonymous=1;\n"
    share, tables = _share()
    text = head + "".join((share / f"{tables}{part}.sql").read_text() for part in ("", "_data"))
    run_command([*enter, *_server(folder), "--bootstrap"], stdin=text)


def start_database(folder: Path, enter: list[str], env: dict[str, str]) -> None:
    """Begin MariaDB, which stays in the foreground of a session of its own; SandboxError when it ends at once."""
    (folder / "db" / "socket").unlink(missing_ok=True)
    argv = [*enter, *_server(folder), "--skip-networking", f"--socket={folder}/db/socket"]
    with (folder / "log" / "mariadb.log").open("ab") as said:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/", env=env, start_new_session=True
        )
    try:
        code = process.wait(0.05)
    except subprocess.TimeoutExpired:
        return
    raise SandboxError(f"mariadbd ended with exit code {code}: see {folder}/log/mariadb.log")


def enrol_argv(cluster: str) -> list[list[str]]:
    """The commands that make the users known, each with the account that their jobs are booked on."""
    return [
        ["sacctmgr", "-i", "add", "cluster", cluster],
        ["sacctmgr", "-i", "add", "account", ACCOUNT, f"Cluster={cluster}"],
        ["sacctmgr", "-i", "add", "user", ",".join(USERS), f"Account={ACCOUNT}", f"Cluster={cluster}"],
    ]


def _share() -> tuple[Path, str]:
    """Where MariaDB's files lie here, and how the names of the scripts begin that make its own tables."""
    for folder, tables in SHARES.items():
        if (folder / f"{tables}.sql").exists():
            return folder, tables
    wanted = " or ".join(f"{folder}/{tables}.sql" for folder, tables in SHARES.items())
    raise SandboxError(f"mariadbd is here, but no {wanted}", hint="Debian, Ubuntu: apt-get install mariadb-server-core")


def _server(folder: Path) -> list[str]:
    # Not /tmp: a server that starts removes the temporary tables of every other one there. Seen when two sandboxes
    # started together: "Table './#sql-…' is marked as crashed".
    return [
        "mariadbd", "--no-defaults", "--user=root", f"--datadir={folder}/db/data", f"--tmpdir={folder}/db/tmp",
        f"--lc-messages-dir={_share()[0]}",
        f"--pid-file={folder}/db/pid", *TUNING,
    ]  # fmt: skip

"""Messages on their way: real servers and programs, up, down, slow and hostile. None does more than fail."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from safelaunch.notify.io import notify
from safelaunch.notify.io.notify import Delivery
from safelaunch.notify.message import Message
from safelaunch.notify.targets import NotifyTarget, targets

SECRET = "T00-XXsecretXX"
MESSAGE = Message("bloom", "safelaunch: bloom has given up", "failure", ("gave_up",),
                  "bloom has given up\nNext: safelaunch why /r\n")
Handle = Callable[[socket.socket], None]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def deliver(*to: NotifyTarget, smtp: str | None = None, env: dict[str, str] | None = None,
            message: Message = MESSAGE) -> dict[str, str]:
    delivery = Delivery(to, message, smtp, {"PATH": os.environ["PATH"], **(env or {})})
    while (results := delivery.poll()) is None:
        time.sleep(0.01)
    return results


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """URL and what it has got."""
    got: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/{SECRET}", got
        server.shutdown()


@pytest.fixture
def serve() -> Iterator[Callable[[Handle], int]]:
    """`serve(handle)`: the port of a server that treats each connection so."""
    servers: list[socketserver.ThreadingTCPServer] = []

    def start(handle: Handle) -> int:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    handle(self.request)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_webhook_gets_json_with_the_whole_text(webhook: tuple[str, list[dict[str, Any]]]) -> None:
    url, got = webhook
    assert deliver(NotifyTarget("env", "URL"), env={"URL": url}) == {"env:URL": ""}
    assert got == [{"v": 1, "run": "bloom", "title": MESSAGE.title, "severity": "failure", "events": ["gave_up"],
                    "text": f"{MESSAGE.title}\nbloom has given up\nNext: safelaunch why /r\n"}]


@pytest.mark.parametrize(("mode", "trouble"), [(0o600, ""), (0o640, "chmod 600")])
def test_a_url_is_read_from_a_file_only_if_that_is_its_users_alone(
    tmp_path: Path, webhook: tuple[str, list[dict[str, Any]]], mode: int, trouble: str
) -> None:
    (tmp_path / "url").write_text(f"# mine\n{webhook[0]}\n")
    (tmp_path / "url").chmod(mode)
    said = deliver(NotifyTarget("file", "~/url"), env={"HOME": str(tmp_path)})["file:~/url"]
    assert trouble in said and bool(said) == bool(trouble) and len(webhook[1]) == (not trouble)


def read_request(connection: socket.socket) -> None:
    """All of it: who closes a connection with bytes that nobody has read resets it, and the answer may get lost."""
    with connection.makefile("rb") as request:
        length = 0
        while (line := request.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        request.read(length)


def endless(head: bytes, part: bytes) -> Handle:
    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(head)
        while True:
            connection.sendall(part)
    return handle


def answers(text: bytes) -> Handle:
    def handle(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(text)
    return handle


def speaks_first(text: bytes) -> Handle:
    return lambda connection: connection.sendall(text)


def waits(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


HOSTILE: dict[str, tuple[Handle, str | tuple[str, str]]] = {
    "an endless body": (endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536), ""),
    "endless headers": (endless(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000), "HTTPException"),
    "10 MB of one header": (answers(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 10_000_000 + b"\r\n\r\n"), "LineTooLong"),
    "endless 100 Continue": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
                             ("no end within 1 s", "HTTPException")),   # Python 3.14.10 reads only so many
    "a redirection": (answers(f"HTTP/1.1 302 Found\r\nLocation: /{SECRET}\r\n\r\n".encode()), "the server answers 302"),
    "no": (answers(f"HTTP/1.1 403 {SECRET}\r\n\r\n".encode()), "the server answers 403"),
    "nothing": (waits, "no end within 1 s"),
    "no HTTP": (answers(SECRET.encode() * 100), "BadStatusLine"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_answer_of_a_server_does_more_than_fail(
    name: str, serve: Callable[[Handle], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, trouble = HOSTILE[name]
    monkeypatch.setattr(notify, "DEADLINE_S", 1.0 if "no end within 1 s" in trouble else 60.0)
    said = deliver(NotifyTarget("env", "URL"), env={"URL": f"http://127.0.0.1:{serve(handle)}/{SECRET}"})["env:URL"]
    assert said.startswith(trouble) and bool(said) == bool(trouble)
    assert SECRET not in said


@pytest.mark.parametrize(("url", "trouble"), [
    ("", "is not set"), (f"http://127.0.0.1:1/{SECRET}", "Connection refused"), (SECRET, "does not hold one URL"),
    (f"http://127.0.0.1:x/{SECRET}", "InvalidURL"), (f"http://a b/{SECRET}", "does not hold one URL"),
    (f"nosuch://{SECRET}", "apprise"),
])
def test_a_url_that_leads_nowhere_is_said_without_it(url: str, trouble: str) -> None:
    said = deliver(NotifyTarget("env", "URL"), env={"URL": url})["env:URL"]
    assert trouble in said and SECRET not in said


def test_other_urls_go_through_apprise(webhook: tuple[str, list[dict[str, Any]]]) -> None:
    pytest.importorskip("apprise", reason="the extra notify is not installed")
    url = webhook[0].replace("http:", "json:")   # apprise's own form of a POST
    assert deliver(NotifyTarget("env", "URL"), env={"URL": url}) == {"env:URL": ""}
    assert (webhook[1][0]["title"], webhook[1][0]["type"]) == (MESSAGE.title, "failure")


def mail_server(got: list[str]) -> Handle:
    def handle(connection: socket.socket) -> None:
        file = connection.makefile("rwb")

        def say(line: str) -> None:
            file.write(f"{line}\r\n".encode())
            file.flush()

        say("220 here")
        for raw in file:
            word = raw.decode().strip()
            got.append(word)
            if word.lower() == "data":
                say("354 go on")
                while (line := file.readline().decode().rstrip("\r\n")) != ".":
                    got.append(line)
            say("221 bye" if word.lower() == "quit" else "250 ok")
    return handle


def test_a_mail_server_gets_the_mail(serve: Callable[[Handle], int]) -> None:
    got: list[str] = []
    port = serve(mail_server(got))
    assert deliver(NotifyTarget("mailto", "me@site"), smtp=f"127.0.0.1:{port}") == {"mailto:me@site": ""}
    assert f"Subject: {MESSAGE.title}" in got and "bloom has given up" in got
    assert any(line.lower().startswith("rcpt to:<me@site>") for line in got)


def test_html_of_a_job_is_text_in_a_mail_of_apprise(serve: Callable[[Handle], int]) -> None:
    pytest.importorskip("apprise", reason="the extra notify is not installed")
    got: list[str] = []
    url = f"mailto://127.0.0.1:{serve(mail_server(got))}?from=a@example.org&to=b@example.org"
    hostile = MESSAGE._replace(text="<img src=http://127.0.0.1:9/x>\n")
    assert deliver(NotifyTarget("env", "URL"), env={"URL": url}, message=hostile) == {"env:URL": ""}
    assert any("text/plain" in line for line in got) and not any("text/html" in line for line in got), got


@pytest.mark.parametrize(("handle", "trouble"), [
    (lambda _: None, "SMTPServerDisconnected"), (speaks_first(b"554 go away\r\n"), "the server answers 554"),
    (waits, "no end within 1 s"),
], ids=["hangs up", "refuses", "says nothing"])
def test_a_mail_server_that_does_not_work_is_said(
    handle: Handle, trouble: str, serve: Callable[[Handle], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "DEADLINE_S", 1.0 if "1 s" in trouble else 60.0)
    said = deliver(NotifyTarget("mailto", "me@site"), smtp=f"127.0.0.1:{serve(handle)}")
    assert said["mailto:me@site"].startswith(trouble)


def test_sendmail_gets_the_mail_and_no_option_from_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/argv; cat > {tmp_path}/mail\n')
    program.chmod(0o755)
    monkeypatch.setattr(notify, "SENDMAIL", str(program))
    assert deliver(NotifyTarget("mailto", "me@site")) == {"mailto:me@site": ""}
    assert (tmp_path / "argv").read_text() == "-i -- me@site\n"
    assert f"Subject: {MESSAGE.title}\n" in (tmp_path / "mail").read_text()
    monkeypatch.setattr(notify, "SENDMAIL", str(tmp_path / "none"))
    assert "set notify.smtp" in deliver(NotifyTarget("mailto", "me@site"))["mailto:me@site"]


def test_a_program_gets_the_text_on_its_standard_input(tmp_path: Path) -> None:
    script = (f'cat > {tmp_path}/text; '
              f'echo "$SAFELAUNCH_RUN $SAFELAUNCH_EVENTS $SAFELAUNCH_SEVERITY $1" > {tmp_path}/env')
    (target,) = targets((), ("/bin/sh", "-c", script, "x", "$(arg)"))
    assert deliver(target) == {"command:/bin/sh": ""}
    assert (tmp_path / "text").read_text() == f"{MESSAGE.title}\n\n{MESSAGE.text}"
    assert (tmp_path / "env").read_text() == "bloom gave_up failure $(arg)\n"


@pytest.mark.parametrize(("script", "trouble"), [
    ("exit 3", "/bin/sh ended with exit code 3"), ("kill -SEGV $$", "/bin/sh ended with exit code -11"),
    ("kill -9 $PPID; exit 0", "died before it answered"),
])
def test_a_program_that_fails_is_said(script: str, trouble: str) -> None:
    assert trouble in deliver(NotifyTarget("command", "/bin/sh", ("-c", script)))["command:/bin/sh"]


def test_a_program_that_is_not_there_is_said() -> None:
    assert deliver(NotifyTarget("command", "/nonexistent/x"))["command:/nonexistent/x"] == "No such file or directory"


def test_a_program_that_hangs_is_killed_with_what_it_has_started_and_holds_up_no_other(
    tmp_path: Path, webhook: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "DEADLINE_S", 60.0)
    pids = tmp_path / "pids"
    pids.touch()
    script = f"trap '' TERM; sleep 1000 & echo $! $$ > {pids}; wait"
    delivery = Delivery((NotifyTarget("command", "/bin/sh", ("-c", script)), NotifyTarget("env", "URL")), MESSAGE, None,
                        {"PATH": os.environ["PATH"], "URL": webhook[0]})
    while len(delivery._children) > 1 or not pids.read_text().endswith("\n"):
        assert delivery.poll() is None
        time.sleep(0.01)
    delivery._children["command:/bin/sh"]._until_s = time.monotonic()   # its deadline
    assert delivery.poll() == {"command:/bin/sh": "no end within 60 s", "env:URL": ""}
    for pid in map(int, pids.read_text().split()):
        _wait_until_gone(pid)


def _wait_until_gone(pid: int) -> None:
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return   # nobody reaps it in a container without an init
        except OSError:
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    pytest.fail(f"process {pid} is left")

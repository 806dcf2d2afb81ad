"""Send a message to its targets, by one disposable child each, with a deadline. So none holds up the supervisor or
another target, whatever a server or a program does. All that can be slow is imported in the child.

A URL is read in the child from its variable or file. It is in no command line, and no error text repeats it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelaunch.base.io import sharedfile
from safelaunch.base.io.probe import BackgroundChild
from safelaunch.extensions.io import plugins
from safelaunch.extensions.plugins import NOTIFIERS, NoPlugin
from safelaunch.notify.message import Message
from safelaunch.notify.targets import COMMAND, ENV, MAILTO, PLUGIN, NotifyTarget, NotSent

if TYPE_CHECKING:
    from safelaunch.extensions.pluginvalues import Notifier

DEADLINE_S = 20.0       # of a target
STEP_S = 10.0           # of one wait for the network within it
MOST_URL_BYTES = 4096
SENDMAIL = "/usr/sbin/sendmail"


class Delivery:
    """One message on its way. `poll()`: for each target by its label why it failed, "" = sent; None = not yet."""

    def __init__(self, targets: Sequence[NotifyTarget], message: Message, smtp: str | None,
                 env: Mapping[str, str]) -> None:
        self._children: dict[str, BackgroundChild] = {}
        self._results: dict[str, str] = {}
        for target in targets:
            try:
                self._children[target.label] = BackgroundChild(_sender(target, message, smtp, env), DEADLINE_S)
            except OSError as error:
                self._results[target.label] = f"no process can be started: {error.strerror}"

    def poll(self) -> dict[str, str] | None:
        """What became of it."""
        for label, child in list(self._children.items()):
            answer = child.poll()
            if answer is not None:
                del self._children[label]
                late = f"no end within {DEADLINE_S:.0f} s" if answer.late else answer.error
                self._results[label] = late or str(answer.value or "")
        return None if self._children else self._results


def _sender(target: NotifyTarget, message: Message, smtp: str | None,
            env: Mapping[str, str]) -> Callable[[], str]:
    def send_it() -> str:
        try:
            _send(target, message, smtp, env)
        except Exception as error:   # noqa: BLE001 - in the child: whatever it is, it is the answer
            return why(error)
        return ""
    return send_it


def why(error: BaseException) -> str:
    """The failure in words that cannot hold a part of the URL: texts of exceptions do (http.client.InvalidURL)."""
    if isinstance(error, NotSent):
        return str(error)
    reason = getattr(error, "reason", None)   # urllib's URLError around the system's error
    if isinstance(reason, OSError):
        error = reason
    code = getattr(error, "smtp_code", None) or getattr(error, "code", None)
    if isinstance(code, int):
        moved = "; write the URL that it redirects to" if 300 <= code < 400 else ""
        return f"the server answers {code}{moved}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _send(target: NotifyTarget, message: Message, smtp: str | None, env: Mapping[str, str]) -> None:
    if target.kind == COMMAND:
        _run([target.value, *target.arguments], f"{message.title}\n\n{message.text}", message, env)
    elif target.kind == MAILTO:
        _mail(target.value, message, smtp, env)
    elif target.kind == PLUGIN:
        _by_plugin(target.value, message, env)
    else:
        url = _url(target, env)
        if url.startswith(("http://", "https://")):
            _post(url, message)
        else:
            _by_apprise(url, message)


def _by_plugin(name: str, message: Message, env: Mapping[str, str]) -> None:
    try:
        send: Notifier = plugins.load_code(NOTIFIERS, name)
    except NoPlugin as error:
        raise NotSent(str(error)) from error
    send(message, env)


def _url(target: NotifyTarget, env: Mapping[str, str]) -> str:
    """The URL that a variable or a file holds; raises NotSent."""
    if target.kind == ENV:
        text = env.get(target.value, "")
        if not text.strip():
            raise NotSent(f"the variable {target.value} is not set where the supervisor runs: export it before "
                          "`safelaunch submit`, or use file:~/PATH")
    else:
        text = _secret_file(target.value, env)
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    if len(lines) != 1 or "://" not in lines[0] or not lines[0].isprintable() or " " in lines[0]:
        raise NotSent(f"{target.label} does not hold one URL on one line")
    return lines[0]


def _secret_file(name: str, env: Mapping[str, str]) -> str:
    path = Path(env.get("HOME", "/") + name[1:] if name.startswith("~/") else name)
    status = path.lstat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise NotSent(f"{name} is not yours alone: chmod 600 {name}")
    return sharedfile.read(path, MOST_URL_BYTES).decode(errors="replace")


def _post(url: str, message: Message) -> None:
    """A POST of JSON. The answer's body is not read; a redirection is not followed: it could lead anywhere."""
    import json
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        """Follows no redirection, so that it is an HTTPError."""

        def redirect_request(self, *_: Any) -> None:
            """None follows."""

    fields = {"v": 1, "run": message.run, "title": message.title, "severity": message.severity,
              "events": message.events, "text": f"{message.title}\n{message.text}"}
    request = urllib.request.Request(url, json.dumps(fields).encode(), {   # noqa: S310 - http and https only
        "Content-Type": "application/json", "User-Agent": "safelaunch"})
    urllib.request.build_opener(Stay).open(request, timeout=STEP_S).close()


def _by_apprise(url: str, message: Message) -> None:
    import importlib

    plugins.see_packages()
    try:
        apprise: Any = importlib.import_module("apprise")   # an extra; without types
    except ImportError as error:
        raise NotSent("this form of URL needs apprise, which is not installed: pip install 'safelaunch[notify]'") from (
            error)
    sender = apprise.Apprise()
    if not sender.add(url):
        raise NotSent("apprise does not know this form of URL")
    # As text: what a job has printed is no HTML or markup of a mail.
    if not sender.notify(body=message.text, title=message.title, notify_type=message.severity, body_format="text"):
        raise NotSent("apprise could not send it; `apprise -vv` on that node says why")


def _mail(address: str, message: Message, smtp: str | None, env: Mapping[str, str]) -> None:
    from email.message import EmailMessage

    letter = EmailMessage()
    letter["Subject"], letter["To"], letter["From"] = message.title, address, address
    letter["Auto-Submitted"] = "auto-generated"   # no answer of an absent reader (RFC 3834)
    letter.set_content(message.text)
    if smtp is None:
        if not os.access(SENDMAIL, os.X_OK):
            raise NotSent(f"there is no {SENDMAIL} on this node: set notify.smtp to a mail server")
        _run([SENDMAIL, "-i", "--", address], letter.as_string(), message, env)
        return
    import smtplib

    host, _, port = smtp.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=STEP_S) as server:
        server.send_message(letter)


def _run(argv: Sequence[str], text: str, message: Message, env: Mapping[str, str]) -> None:
    """A program with the message on its standard input; its output is not kept."""
    import subprocess

    more = {"SAFELAUNCH_EVENTS": ",".join(message.events), "SAFELAUNCH_SEVERITY": message.severity,
            "SAFELAUNCH_RUN": message.run}
    done = subprocess.run(argv, input=text.encode(), env={**env, **more}, cwd="/", check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode:
        raise NotSent(f"{argv[0]} ended with exit code {done.returncode}")

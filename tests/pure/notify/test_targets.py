"""notify.to and notify.command: no secret gets into train.yaml by them, nor into an error on it."""

from __future__ import annotations

import pytest

from safelaunch.errors import ConfigError
from safelaunch.notify.targets import NotifyTarget, targets, why_not
from tests.pure.config.test_config import MINIMAL, config
from tests.tables import each

SECRET = "T00/B00/XXsecretXX"


@each("text", ["env:SLACK_URL", "file:~/.config/safelaunch/notify.url", "file:/etc/x", "mailto:me@site",
               "mailto:a.b+c@example.org"])
def test_a_name_of_a_secret_or_an_address_is_taken(text: str) -> None:
    assert why_not(text) is None


@each("text", ["env:", "env:A B", "env:1A", "file:x", "file:~bob/x", "mailto:me", "mailto:-oX@site", "mailto:a@-x",
               "mailto:a@b\n", "slack", "", "command:/bin/x", "mailto://user:pass@host"])
def test_anything_else_is_not(text: str) -> None:
    assert why_not(text)


@each("url", [f"https://hooks.example.org/{SECRET}", f"slack://{SECRET}", f"tgram://{SECRET}/1"])
def test_a_url_is_refused_with_what_to_do_and_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(f"{MINIMAL}\nnotify: {{to: ['{url}']}}\n")
    assert SECRET not in str(caught.value)
    assert "notify.to: entry 1: a URL can hold a secret" in str(caught.value) and "env:NAME" in str(caught.value)


@each(("text", "complaint"), [
    ("command: [notify-send]", "the full path of a program"),
    ("command: /bin/x", "expected a list of a program"),
    ("command: [/bin/x, --token=hf_7aZk3Lm9Qw2Er5Ty8Ui1Op4As6Df]", "word 2 looks like a secret"),
    ("when: [crash]", "expected gave_up"),
    ("smtp: mail.example.org", "host:port"),
    ("to: mailto:me@site", "expected a list"),
])
def test_a_mistake_is_said(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(f"{MINIMAL}\nnotify: {{{text}}}\n")
    assert complaint in str(caught.value) and "hf_7aZk" not in str(caught.value)


def test_each_target_is_told_once() -> None:
    assert targets(("env:A", "env:A", "mailto:a@b"), ("/bin/x", "y")) == (
        NotifyTarget("env", "A"), NotifyTarget("mailto", "a@b"), NotifyTarget("command", "/bin/x", ("y",)))

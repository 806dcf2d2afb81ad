"""Secrets in foreign text → ***, because text of logs and command lines reaches other people in verdicts and tickets. A
secret is recognised by a provider's prefix, by its place (URL, header), or by the name before it. A name alone is not
enough before words and numbers: "tokens=4096" and "cache_key: resnet50" are no secrets. All repeats are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
# Without one of these there is no secret to find: most lines need no further test.
_HINTS = ("key", "token", "secret", "pass", "pwd", "://", "bearer", "basic", "authorization", "cookie", "wandb", "curl",
          "hf_", "sk-", "sk_", "rk_", "gho_", "ghp_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-",
          "xox", "xapp-", "akia", "asia", "aiza", "eyj", "sg.", "ya29.", "r8_", "nvapi-", "gsk_", "dop_v1_", "dapi",
          "lin_api_", "glsa_", "shpat_", "signature", ":aa")
# Compiled where they are used: together that takes milliseconds, and a submission seldom needs one.
# Sources: GitHub "About authentication", GitLab "Token prefixes", AWS IAM "Unique identifiers", Hugging Face, OpenAI,
# Anthropic, Slack, Google Cloud, npm, PyPI, SendGrid, Replicate, NVIDIA NGC, Groq, DigitalOcean, Databricks, Linear,
# Grafana, Shopify, Stripe, Telegram; RFC 7519 (JWT), RFC 3986 (user:password@host), RFC 6750 (Bearer), RFC 7468 (PEM).
_BY_FORM = (
    r"\b(hf_|gh[opusr]_|github_pat_|glpat-|npm_|pypi-|xox[abeoprs]-|xapp-|sk-|[sr]k_(?:live|test)_|r8_|nvapi-|gsk_|"
    r"dop_v1_|lin_api_|glsa_|shpat_)(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,512}"
    r"|\b(hf_)[A-Za-z0-9]{30,64}\b"
    r"|\b(dapi)[0-9a-f]{32}\b"
    r"|\b(SG\.)[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"
    r"|\b(ya29\.)[A-Za-z0-9._-]{16,4096}"
    r"|\b([0-9]{8,10}:)AA[A-Za-z0-9_-]{33}\b"
    r"|(-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?:\\[nr]|[\w+/=:,\s-]){1,8192}"
    r"|(?i:\b((?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks|"
    r"[a-z0-9.-]{1,100}\.office\.com/webhookb2|api\.telegram\.org/bot|[a-z0-9.-]{1,100}/hooks)/?)[a-z0-9_@:/-]{8,512})"
    r"|(?i:\b((?:proxy-)?authorization['\"]?[ \t]{0,4}[:=][ \t]{0,4}['\"]?"
    r"(?:basic|bearer|token|digest|negotiate|apikey|aws4-hmac-sha256)[ \t]{1,4})[^'\"\\\r\n]{4,4096})"
    r"|(?i:\b((?:set-)?cookie['\"]?[ \t]{0,4}[:=][ \t]{0,4}['\"]?)[\w.-]{1,64}=[^'\"\\\r\n]{1,4096})"
    r"|(?i:\b(wandb\b[^\r\n]{0,80}?\b(?:login|key)\b[^\r\n]{0,40}?)\b[0-9a-f]{40}\b)"
    r"|(?i:\b((?:curl|wget)\b[^\r\n]{0,400}?[ \t](?:-u|--user)[ =]['\"]?[^\s:'\"]{1,64}:|sshpass[ \t]{1,4}-p[ \t]{0,4})"
    r"[^\s'\"\\]{3,512})"
    r"|\b(AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\b(AIza)[A-Za-z0-9_-]{35}"
    r"|\b(eyJ)[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}(?:\.[A-Za-z0-9_-]{0,1024})?"
    r"|(?i:\b(Bearer[ \t]{1,4}|Basic[ \t]{1,4})(?=[a-z._~+/-]{0,128}[0-9=])[a-z0-9._~+/=-]{8,4096})")
_QUERY = (
    r"(?i)([?&](?:[a-z0-9_-]{0,32}(?:token|secret|password|signature|api[_-]?key)|sig|key|auth|x-(?:amz|goog)-credential)=)"
    r"[^\s&'\"<>\\]{4,4096}")
_URL = r"(://)(?:[^\s/@:'\"\\]{0,128}:[^\s/@'\"\\]{1,512}|[A-Za-z0-9_-]{16,255})@"
_PAIR = (
    r"(?i)(?<![a-z0-9_-])(?P<name>-{0,2}[a-z0-9_.-]{0,64}(?:key|token|secret|password|passwd|passphrase|pass|pwd))"
    r"(?P<sign>(?:\\{0,7}['\"]?[ \t]{0,4}[=:][ \t]{0,4}(?:[bfru]{1,2}(?=['\"]))?"
    r"|\\{0,7}['\"],[ \t]{0,4}(?=\\{0,7}['\"])|[ \t]{1,4})(?:\"\"\"|\'\'\'|\\{0,7}['\"])?)"
    r"(?P<value>(?<=[^\\]\")(?:[^\"\\\r\n]|\\[^\r\n]){3,512}(?=\")|(?<=[^\\]')(?:[^'\"\\\r\n]|\\[^\r\n]){3,512}(?=')"
    r"|(?<=['\"])[^'\"\\\r\n]{3,512}(?=\\{0,7}['\"])|(?:[^\s'\"\\&;,]|\\ ){3,512})")
# Names whose value is always a secret; a name in capitals is a variable.
_SURE = (
    r"[\w.-]{0,64}(?:secret|password|passwd|passphrase)"
    r"|(?:[\w.-]{0,64}[_.-])?pwd"
    r"|(?:[\w.-]{0,64}[_.-])?(?:db|database|user|admin|root|mysql|pg|postgres|redis|mongo|smtp|mail|ftp|ssh|http|proxy|"
    r"ldap|login|app|service)[_-]?pass"
    r"|[\w.-]{0,64}(?:api|access|secret|private|auth|account|signing|encryption)[_-]?key"
    r"|(?:[\w.-]{0,64}[_.-])?(?:access|auth|api|bearer|refresh|session|hf|hub|github|gitlab|wandb|slack|personal|secret)"
    r"[_-]?token")
_VARIABLE = r"[A-Z0-9_]{1,64}_(?:KEY|TOKEN|PASS)"
_TOKENISERS = r"(?i)(?:pad|eos|bos|unk|sep|cls|mask|eot|image|next|last|stop|start|per)[_-]?token"
_NO_VALUE = (r"(?i)(?:none|null|true|false|yes|no|not|required|missing|invalid|expired|is|was|has)(?!\w)"
             r"|[<\[({$*/.]|[-+]?[0-9][0-9.,_e+-]{0,40}$")
_RANDOM = r"(?=[A-Za-z_+=-]{0,256}[0-9])(?=[0-9_+=-]{0,256}[A-Za-z])[A-Za-z0-9_+=-]{20,512}"


def mask(text: str) -> str:
    """`text` with secrets as ***; the name or prefix stays, so that a reader knows which one it was."""
    lowered = text.lower()
    if not any(map(lowered.__contains__, _HINTS)):
        return text
    text = re.sub(_URL, rf"\1{HIDDEN}@", text)
    text = re.sub(_QUERY, rf"\1{HIDDEN}", text)
    text = re.sub(_BY_FORM, lambda found: f"{next(filter(None, found.groups()))}{HIDDEN}", text)
    return re.sub(_PAIR, _hide, text)


def mask_all(value: Any) -> Any:
    """The same of all texts in a value: of JSON, whose keys stay, or with named fields."""
    if isinstance(value, str):
        return mask(value)
    if hasattr(value, "_fields"):
        return type(value)(*map(mask_all, value))
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(**{name: mask_all(getattr(value, name)) for name in value.__dataclass_fields__})
    if isinstance(value, Mapping):
        return {key: mask_all(inner) for key, inner in value.items()}
    return type(value)(map(mask_all, value)) if isinstance(value, (list, tuple)) else value


def hide_values(config: Mapping[str, object]) -> dict[str, object]:
    """A resolved config as run.json shows it: no value of `env`, no secret in `command` or `setup`. The values
    themselves are only in job.sbatch, which only the run's owner can read. Applying it twice changes nothing.
    """
    texts = {key: mask(text) for key in ("command", "setup") if isinstance(text := config.get(key), str)}
    return {**config, **texts, "env": dict.fromkeys(env if isinstance(env := config["env"], dict) else (), HIDDEN)}


def _hide(found: re.Match[str]) -> str:
    name, sign, value = found["name"], found["sign"], found["value"]
    return f"{name}{sign}{HIDDEN}" if _is_secret(name, sign, value) else found[0]


def _is_secret(name: str, sign: str, value: str) -> bool:
    is_option = name.startswith("--")
    if HIDDEN in value or re.match(_NO_VALUE, value) or re.fullmatch(_TOKENISERS, name.lstrip("-")):
        return False
    if not sign.strip(" \t'\",\\"):   # a word behind a word, also in a list of words
        return is_option and not value.startswith("-")
    if is_option or re.fullmatch(_SURE, name.lower().lstrip("-")) or re.fullmatch(_VARIABLE, name):
        return True
    return re.fullmatch(_RANDOM, value) is not None

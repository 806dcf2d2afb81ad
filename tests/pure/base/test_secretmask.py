"""What is a secret in a line of a log or a command line, and what only looks like one. All values here are made up."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import uuid

from safelaunch.base.secretmask import hide_values, mask
from safelaunch.why import loglines
from tests.tables import each


def random(length: int, number: int, letters: str = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789") -> str:
    """Letters and figures that are the same in each run."""
    made = "".join(hashlib.sha256(f"{number} {turn}".encode()).hexdigest() for turn in range(4))
    chosen = (letters[int(made[at:at + 2], 16) % len(letters)] for at in range(0, 2 * length, 2))
    return "".join(chosen)[:length - 1] + "7"


CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
TOKENS = [f"{prefix}{random(36, number)}" for number, prefix in enumerate((
    "hf_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "npm_", "pypi-", "xoxb-", "xoxp-", "sk-", "sk-proj-",
    "sk-ant-"))]
TOKENS += [f"AKIA{random(16, 21, CAPITALS)}", f"ASIA{random(16, 22, CAPITALS)}", f"AIza{random(35, 23)}",
           f"eyJ{random(30, 24)}.eyJ{random(60, 25)}.{random(43, 26)}"]
PLACES = ("{}", "requests.exceptions.HTTPError: 401 for token {}", "Authorization: Bearer {}",
          "HF_TOKEN={} python train.py", "python train.py --hub-token {} --steps 5",
          "{{'auth': '{}'}}", '{{"key": "{}", "n": 1}}', "url?sig={}&x=1",
          "using {}, then going on")
NAMED = ("WANDB_API_KEY={}", "wandb: api_key: {}", "--wandb-key {}", "--api-key={}", "password={}",
         "PGPASSWORD='{}' psql", "secret: {}", '"client_secret": "{}"', "AWS_SECRET_ACCESS_KEY={}", "--password {}",
         "--db_token {}", "auth_token: {}", "https://ann:{}@git.example.org/x.git",
         "postgres://u:{}@db:5432/runs", "passwd = {}")
VALUES = ("hunter2", "correct-horse", "p4ss.w0rd!", hashlib.sha1(b"wandb").hexdigest())
POSITIVE = [(place.format(token), token) for place, token in itertools.product(PLACES, TOKENS)]
POSITIVE += [(place.format(value), value) for place, value in itertools.product(NAMED, VALUES)]
POSITIVE += [(f"wandb login key={digest}", digest) for number in range(5)
             for digest in [hashlib.sha1(bytes([number])).hexdigest()]]
HEX, WORDS = hashlib.sha1(b"more").hexdigest(), "two words here"
# (line with {}, the secret): services, headers, addresses and forms that each bring a kind of their own.
POSITIVE += [(line.format(secret), secret) for line, secret in (
    ("POST https://hooks.slack.com/services/{} failed: 404", f"T0{random(8, 50)}/B0{random(8, 51)}/{random(24, 52)}"),
    ("https://hooks.slack.com/workflows/{}", f"T0{random(8, 50)}/A0{random(8, 51)}/{random(24, 52)}"),
    ("webhook https://discord.com/api/webhooks/{}", f"117{random(15, 53)}/{random(60, 54)}"),
    ("https://discordapp.com/api/v10/webhooks/{}", f"117{random(15, 53)}/{random(60, 54)}"),
    ("https://team.webhook.office.com/webhookb2/{}", f"{uuid.UUID(int=7)}@{uuid.UUID(int=9)}/IncomingWebhook/{HEX}"),
    ("https://chat.example.org/hooks/{}", random(26, 55).lower()),
    ("https://api.telegram.org/bot{}/sendMessage", f"123456789:AA{random(33, 56)}"),
    ("telegram bot 123456789:{} started", f"AA{random(33, 57)}"),
    ("GET https://host/x?token={} 403", "abcdef123456"), ("https://host/x?a=1&access_token={}&b=2", "abcdef"),
    ("https://acc.blob.core.windows.net/c/f?sv=2024&se=2026&sig={}", "Zm9vYmFy%2Fbaz%3D"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Signature={}", HEX),
    ("https://b.s3.amazonaws.com/k?X-Amz-Credential={}", "AK/x"),
    ("https://b.s3.amazonaws.com/k?X-Amz-Security-Token={}", random(60, 58)),
    ("https://storage.googleapis.com/b/o?X-Goog-Signature={}", HEX), ("https://h/x?key={}", "secretword"),
    ("https://h/x?api_key={}", "hunter"), ("https://h/x?password={}", "hunter"),
    ("https://h/x?client_secret={}", "hunter"),
    ("Authorization: Basic {}", "dXNlcjpwYXNz"), ("authorization: token {}", "abcdefgh"),
    ("'Authorization': 'Token {}'", "abcdefgh"), ("Proxy-Authorization: Digest {}", "username=ann"),
    ("Authorization: ApiKey {}", "plain-words"), ("Authorization: AWS4-HMAC-SHA256 Credential={}", "abc/def"),
    ("Cookie: sessionid={}", "abcdef"), ("set-cookie: csrf={}; Path=/", "abcdef"),
    ("'Cookie': 'a=1; b={}'", "wordword"),
    ("wandb: api key {}", HEX), ("wandb login {}", HEX), ("wandb login --relogin {}", HEX), ("wandb: key is {}", HEX),
    ("client_secret={}", "abc"), ("DB_PASS: {}", "hunter2"), ("MYSQL_PASS={}", "hunter"), ("smtp_pass = {}", "hunter"),
    ("REGISTRY_PASS={}", "hunter"), ('token="{}"', f"{random(20, 59)}"), ('auth_token="{}"', WORDS),
    ('password="{}"', WORDS), ("password: '{}'", WORDS), ('"db_password": "{}"', WORDS), ("passphrase='{}'", WORDS),
    # the same in other quotes: texts of Python, of a shell, of JSON in JSON, and lists of words
    ("password=b'{}'", WORDS), ('password=rb"{}"', WORDS), ('secret = """{}"""', WORDS), ('password="it\'s {}"', WORDS),
    ('password="{}"', 'two \\" words'), ("password='{}'", "it\\'s mine"), ("PGPASSWORD={} psql", "two\\ words"),
    ('{{\\"password\\": \\"{}\\"}}', "hunter2"), ('{{\\"api_key\\": \\"{}\\", \\"n\\": 1}}', WORDS),
    ("Command '['mysql', '--password', '{}']' returned 1", "hunter2"), ('["--hub-token", "{}", "-v"]', WORDS),
    ('\\"--api-key\\", \\"{}\\"', "hunter2"), ('--token "{}"', "abc def"), ('HF_TOKEN="{}"', "abc def"),
    ("SG.{}", f"{random(22, 60)}.{random(43, 61)}"), ("ya29.{}", random(60, 62)), ("r8_{}", random(37, 63)),
    ("nvapi-{}", random(64, 64)), ("gsk_{}", random(52, 65)), ("dop_v1_{}", hashlib.sha256(b"do").hexdigest()),
    ("dapi{}", hashlib.md5(b"dapi").hexdigest()), ("lin_api_{}", random(40, 66)), ("glsa_{}", random(32, 67)),
    ("shpat_{}", HEX), ("sk_live_{}", random(24, 68)), ("rk_test_{}", random(24, 69)), ("xapp-{}", random(40, 70)),
    ("hf_{}", "abcdefghijkLMNOPqrstuvwxyzABCDEFGH"),
    ("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", f"{random(64, 71)}\n{random(64, 72)}"),
    ("-----BEGIN PRIVATE KEY-----\n{}", random(64, 73)), ("-----BEGIN OPENSSH PRIVATE KEY----- {}", random(64, 74)),
    ("curl -s -u ann:{} https://h/x", "hunter"), ("curl --user 'ann:{}' https://h", "hunter"),
    ("sshpass -p {} scp a b", "hunter"),
    ("Protocol=https;AccountName=x;AccountKey={};EndpointSuffix=core.windows.net", f"{random(64, 75)}=="),
)]

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x10\0\0\0\x10\x08\x06\0\0\0"
NEGATIVE = [
    *(f"commit {hashlib.sha1(bytes([n])).hexdigest()} of main" for n in range(60)),
    *(f"run {uuid.UUID(int=n * 7919 << 64)} on node" for n in range(60)),
    *(f"step {n}: loss={4 / (n + 1):.4f} lr=3e-4 tokens={n * 4096} tokens/s: {n * 100.5}" for n in range(80)),
    *(f"/gpfs/ann/runs/bloom-{n}/ckpt/step_{n * 1000:08d}/mp_rank_{n:02d}_model_states.pt" for n in range(60)),
    *(f"layers.{n}.attn.key.weight: torch.Size([{n * 64}, 1024])" for n in range(60)),
    *(f"gpu{n:03d}: sha256:{hashlib.sha256(bytes([n])).hexdigest()}" for n in range(60)),
    *(f"{name}={value}" for name in ("max_tokens", "num_tokens", "tokens", "seq_len", "n_keys", "key_size", "pad_token",
                                     "token", "top_key") for value in (4096, "1e6", 50257, "8,192", "None", "<pad>")),
    *(f"{name}: {value}" for name in ("key", "primary_key", "sort_key", "token_type", "tokenizer", "eos_token",
                                      "bos_token", "cache_key", "text_key", "monkey", "keyboard", "key_value_heads")
      for value in ("value", "input_ids", "bpe", "resnet50", "/data/x.json", "</s>")),
    *(f"<img src='data:image/png;base64,{base64.b64encode(PNG + hashlib.sha512(bytes([n])).digest()).decode()}'>"
      for n in range(20)),
    *(f"wandb: View run {name}-{n} at https://wandb.ai/ann/bloom/runs/{random(8, n).lower()}"
      for n, name in enumerate(("glad-sun", "dry-moon", "icy-field", "old-pine") * 5)),
    *(f"run-20261122_0914{n:02d}-{random(8, n).lower()}/files/config.yaml" for n in range(20)),
    *(f"saved step_{n}.safetensors ({n} GB), etag \"{hashlib.md5(bytes([n])).hexdigest()}\", "
      f"sha256 {hashlib.sha256(bytes([n])).hexdigest()}" for n in range(20)),
    *(f"/home/ann/.cache/huggingface/hub/models--bigscience--bloom/snapshots/{hashlib.sha1(bytes([n])).hexdigest()}/"
      f"model-{n:05d}-of-00072.safetensors" for n in range(20)),
    *(f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{uuid.UUID(int=n * 104729 << 60)})" for n in range(8)),
    *(f"Digest: sha256:{hashlib.sha256(bytes([n])).hexdigest()} of nvcr.io/nvidia/pytorch:24.{n:02d}-py3"
      for n in range(1, 13)),
    *(f"n{n}:{4711 + n}:{4712 + n} [{n}] NCCL INFO comm 0x55{hashlib.md5(bytes([n])).hexdigest()[:10]} commId "
      f"0x{hashlib.md5(bytes([n])).hexdigest()[:16]} - Init COMPLETE" for n in range(8)),
    *(f"s3://runs/ann/bloom/{uuid.UUID(int=n * 7919 << 50)}/step_{n}.pt?versionId={random(32, n)}" for n in range(8)),
    *(f"--{name} {value}" for name, value in (
        ("num-tokens", 4096), ("key-dim", 64), ("token-dropout", 0.1), ("max-new-tokens", 512), ("keys", "a,b"),
        ("num-key-value-heads", 8), ("tokens-per-batch", "4M"), ("secrets-file", "/run/x"), ("monkeypatch", "torch"),
        ("keyframes", 24), ("token-shift", 1), ("special-tokens", "bos"))),
    *(f"{name} = {value}" for name, value in (
        ("attention_key_channels", 128), ("token_embedding", "Embedding(50257, 1024)"), ("vocab_key", "input_ids"),
        ("image_token_index", 32000), ("mask_token", "[MASK]"), ("sort_key", "length"), ("dict_key", "loss"),
        ("tokens_seen", "1.2e12"), ("per_token_loss", 2.41), ("label_key", "labels"), ("state_key", "module.weight"),
        ("next_token", "the"), ("wandb_mode", "offline"), ("key_padding_mask", "tensor([1, 0])"))),
    "KeyError: 'model.layers.0.key_proj.weight'", "unexpected token '<' at line 5", "token has expired, log in again",
    "disk-0123456789abcdef0123 is full", "task-based scheduling", "git@github.com:team/model.git", "sk-learn 1.3.2",
    "https://docs.example.org/a:b/c@v2", "ssh://git@example.org/x.git", "the Bearer of bad news",
    "Basic authentication",
    "--tokenizer-model /data/tok.model --max-tokens 4096 --num-key 8", "--use-api-key --steps 5", "password: required",
    "Missing key(s) in state_dict: 'lm_head.weight'", "secrets are fine", "Enter password:", "api_key: None",
    "HF_TOKEN is not set", "forward_pass: 12.3ms", "first pass: done", "second_pass = ok", "pass: 3, fail: 0",
    "bypass=true", "https://host/x?keyword=loss&page=2", "https://h/x?step=100&monkey=abc", "authorization: required",
    "Authorization failed for ann", "cookies are off", "wandb login failed", "wandb: key metrics follow", "curl -u",
    f"wandb: commit {hashlib.sha1(b'c').hexdigest()}", "hf_transfer_is_not_installed_in_this_environment",
    "-----BEGIN CERTIFICATE-----", "12:34:56:AA", "https://github.com/org/webhooks", "signature mismatch: f(a, b)",
    "passed 12 of 12", "token: '<pad> two words'", "hf_hub_download failed", "ghp_ is a prefix",
    "[local0:0]:step 5 loss 1.0 rank 0",
    # a token of a text may be two words; names in a list are no pairs
    'token="abc def"', "token: 'New York'", '"token": "the end"', 'key="hello world"', "cache_key=b'train split'",
    'eos_token="end of text"', '\\"sort_key\\": \\"step loss\\"', "['token', 'password', 'secret']",
    "add_argument('--password', '-p')", "['--num-token', '4096']", "['--pad-token', '</s>']", 'password="",other="x y"',
    "['train.py', '--token', '--steps']", "password=b''",
]


@each(("line", "secret"), POSITIVE)
def test_a_secret_is_masked(line: str, secret: str) -> None:
    assert secret not in mask(line) and "***" in mask(line)
    assert secret not in loglines.text(line.encode())


def test_what_only_looks_like_one_stays() -> None:
    assert [(line, mask(line)) for line in NEGATIVE if mask(line) != line] == []


def test_there_are_enough_of_both() -> None:
    assert len({line for line, _ in POSITIVE}) >= 200 and len(set(NEGATIVE)) >= 600


def test_masking_leaves_json_whole_and_is_done_once() -> None:
    for line, _ in POSITIVE:
        text = json.dumps({"cmd": f'{line} "quoted\\"', "why": line})
        assert json.loads(mask(text)) and mask(mask(line)) == mask(line)


def test_a_config_shows_the_names_of_env_and_no_value_and_no_secret_of_command_and_setup() -> None:
    config = {"name": "bloom", "command": f"python train.py --hub-token {TOKENS[0]} --steps 5", "setup": None,
              "env": {"NCCL_DEBUG": "WARN", "HF_TOKEN": "hunter2"}, "resume": {"args": "--load {path}"}}
    shown = hide_values(config)
    assert shown == {**config, "command": "python train.py --hub-token hf_*** --steps 5",
                     "env": {"NCCL_DEBUG": "***", "HF_TOKEN": "***"}}
    assert hide_values(shown) == shown
    assert config["env"] == {"NCCL_DEBUG": "WARN", "HF_TOKEN": "hunter2"}


@each(("text", "value"), POSITIVE[::7])
def test_what_is_hidden_stays_as_it_is_when_it_is_hidden_again(text: str, value: str) -> None:
    assert mask(mask(text)) == mask(text)

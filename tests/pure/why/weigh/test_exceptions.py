"""What an exception means whose text no rule knows: its type, words, errno and place speak for categories."""

from __future__ import annotations

from safelaunch.why.weigh.exceptions import MOST_WEIGHT, Reading, read_exception
from tests.tables import each

SITE = "/opt/env/lib/python3.11/site-packages/"


def raised_in(path: str, function: str = "f", code: str = "g()") -> tuple[str, ...]:
    frame = f'  File "{path}", line 7, in {function}'
    return ("Traceback (most recent call last):", frame, f"    {code}", "the exception")


@each(
    ("kind", "message", "path", "category"),
    [
        ("NameError", "name 'x' is not defined", "train.py", "user_code"),
        ("ModuleNotFoundError", "No module named 'x'", "train.py", "environment"),
        ("torch.cuda.OutOfMemoryError", "", "train.py", "cuda_oom"),
        ("KeyboardInterrupt", "", "train.py", "cancelled"),
        ("MemoryError", "", "train.py", "host_oom"),
        ("FileNotFoundError", "[Errno 2] x", "train.py", "config"),
        ("AssertionError", "", "megatron/arguments.py", "config"),
        ("AssertionError", "", "model.py", "user_code"),
        ("ValueError", "option --tp must be set", "train.py", "config"),
        ("ValueError", "sample 8 has no label", "my_dataset.py", "data"),
        ("RuntimeError", "x 2.0 is not installed; please install it", "train.py", "environment"),
        ("ImportError", "requires torch>=2.4", "train.py", "environment"),
        ("mypackage.Strange", "no such thing", "train.py", "user_code"),
        ("TypeError", "argument 'input' must be Tensor", "train.py", "user_code"),
        ("KeyError", "'labels'", "train.py", "user_code"), ("KeyError", "'the data set'", "train.py", "user_code"),
        ("ValueError", "(checkpoint)", "train.py", "user_code"),
    ],
    ids=["a name", "a module", "memory of the card", "Ctrl-C", "memory of the host", "a file", "an argument's check",
         "an assertion", "an option", "a sample", "a package", "an import", "a type of its own", "a type error",
         "a key", "a key of words", "one word"],
)
def test_what_an_exception_means(kind: str, message: str, path: str, category: str) -> None:
    assert read_exception(kind, message, raised_in(f"/home/u/{path}")).category == category


@each(
    ("kind", "category"),
    [
        ("omegaconf.errors.Odd", "config"), ("argparse.Odd", "config"), ("toml.decoder.Odd", "config"),
        ("torch.distributed.checkpoint.api.Odd", "checkpoint"), ("orbax.checkpoint.errors.Odd", "checkpoint"),
        ("botocore.exceptions.Odd", "storage"), ("datasets.exceptions.Odd", "data"), ("PIL.Odd", "data"),
        ("zarr.errors.Odd", "data"), ("webdataset.tariterators.Odd", "data"), ("wandb.errors.Odd", "hub_auth"),
        ("huggingface_hub.errors.Odd", "hub_auth"), ("torch.distributed.elastic.rendezvous.api.Odd", "rendezvous"),
        ("einops.Odd", "user_code"), ("mypackage.Odd", "user_code"), ("Odd", "user_code"),
    ],
    ids=lambda value: value,
)
def test_a_type_that_nobody_knows_is_read_by_the_package_that_defines_it(kind: str, category: str) -> None:
    assert read_exception(kind, "", raised_in("/home/u/train.py")).category == category


@each(
    ("path", "function", "code", "category"),
    [
        ("/home/u/ckpt.py", "load_checkpoint", "opt.load_state_dict(blob)", "checkpoint"),
        ("/home/u/train.py", "parse_args", "return int(text)", "config"),
        ("/home/u/pairs.py", "__getitem__", "return self.rows[at]", "data"),
        ("/home/u/train.py", "setup", "init_process_group('nccl')", "rendezvous"),
        (SITE + "datasets/arrow_writer.py", "finalize", "x()", "data"),
        (SITE + "wandb/sdk/wandb_init.py", "init", "x()", "hub_auth"),
        ("/home/u/model.py", "forward", "x = x + y", "user_code"),
    ],
    ids=["loading a checkpoint", "arguments", "a sample", "the process group", "a library of data", "a tracker",
         "a model"],
)
def test_a_type_of_somebody_s_own_is_read_by_where_it_was_raised(
    path: str, function: str, code: str, category: str,
) -> None:
    assert read_exception("Odd", "", raised_in(path, function, code)).category == category


@each(
    ("kind", "message", "category"),
    [
        ("OSError", "[Errno 122] odd words: 'a'", "storage"),
        ("OSError", "[Errno 113] odd words", "network"),
        ("OSError", "[Errno 98] odd words", "rendezvous"),
        ("RuntimeError", "write of block 7 failed: ENOSPC", "storage"),
        ("RuntimeError", "the manifest of the checkpoint is incomplete", "checkpoint"),
        ("RuntimeError", "peer is unreachable: connection timed out", "network"),
        ("ValueError", "unknown scheduler 'cosin', choose from ['cosine', 'wsd']", "config"),
        ("RuntimeError", "your access token has expired", "hub_auth"),
        ("RuntimeError", "loss is NaN in layer 3", "numerical"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/a/step_900/model.safetensors'", "checkpoint"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/a/shards/00017.tar'", "data"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'conf/train.yaml'", "config"),
    ],
)
def test_words_and_error_numbers_outweigh_a_type_that_says_little(kind: str, message: str, category: str) -> None:
    assert read_exception(kind, message, raised_in("/home/u/train.py", "main")).category == category


@each(
    ("kind", "message", "category"),
    [
        ("OSError", "[Errno 36] File name too long: '/ckpt/checkpoints/step_1.pt'", "user_code"),
        ("OSError", "[Errno 22] Invalid argument: '/ckpt/step:100.pt'", "user_code"),
        ("FileExistsError", "[Errno 17] File exists: '/ckpt/step_100'", "user_code"),
        ("OSError", "[Errno 18] Invalid cross-device link: '/tmp/a.pt' -> '/ckpt/a.pt'", "user_code"),
        ("IsADirectoryError", "[Errno 21] Is a directory: '/ckpt/latest'", "config"),
        ("OSError", "[Errno 28] No space left on device: '/data/step_100.pt'", "storage"),
        ("OSError", "[Errno 5] Input/output error: '/ckpt/step_100.pt'", "storage"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/ckpt/step_100.pt'", "checkpoint"),
    ],
    ids=lambda value: value,
)
def test_what_the_system_says_of_a_file_outweighs_what_it_is_called(kind: str, message: str, category: str) -> None:
    frames = raised_in("/home/u/train.py", "save_checkpoint", "torch.save(state, path)")
    assert read_exception(kind, message, frames).category == category


@each(
    ("kind", "message", "category"),
    [
        ("ray.exceptions.GetTimeoutError", "Get timed out: some object(s) not ready.", "hang"),
        ("mylib.CollectiveTimeoutError", "no answer in 30 s", "hang"),
        ("mylib.PeerConnectionError", "", "network"), ("mylib.HostMemoryError", "", "host_oom"),
        ("jaxlib.xla_extension.XlaRuntimeError", "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: sync0.", "hang"),
        ("jax.errors.JaxRuntimeError", "UNAVAILABLE: the leader does not answer", "network"),
        ("RuntimeError", "[enforce fail at gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4",
         "user_code"),
        ("RuntimeError", "[enforce fail at inline_container.cc:424] . PytorchStreamWriter failed writing file data/8: "
         "file write failed", "storage"),
        ("RuntimeError", "Check failed: shape.size == rank (3 vs. 2)", "user_code"),
        ("ZeRORuntimeException", "A client provided optimizer is used with offload. Please see https://hub.ai/token",
         "config"),
    ],
    ids=lambda value: value,
)
def test_kin_of_types_status_words_and_failed_checks_speak(kind: str, message: str, category: str) -> None:
    assert read_exception(kind, message, ()).category == category


def test_a_type_that_says_much_is_taken_at_its_word() -> None:
    block = raised_in("/home/u/ckpt.py", "load_checkpoint")
    assert read_exception("NameError", "name 'checkpoint' is not defined", block) == Reading("user_code", 0.86)


@each("message", ["no space left", "no space left, quota, stale file handle, EIO"])
def test_words_never_make_a_reading_sure(message: str) -> None:
    assert 0.5 <= read_exception("Odd", message, ()).weight <= MOST_WEIGHT < 0.8


def test_data_that_is_not_there_is_a_matter_of_settings() -> None:
    assert read_exception("ValueError", "dataset x not found", ()).action == "fix_config"
    assert read_exception("ValueError", "dataset x has a corrupt record", ()).action == ""


def test_a_wrapper_weighs_less_than_what_it_wraps() -> None:
    wrapper = read_exception("RuntimeError", "Caught RuntimeError in DataLoader worker process 7.", ())
    assert wrapper.weight < read_exception("RuntimeError", "odd", ()).weight

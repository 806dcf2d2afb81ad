"""What the place of an exception says: the package that defines or raises it, and what the code there was about."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from safelaunch.why.read.tracebacks import TracebackFrame

# Modules of packages → category, and how much their exceptions speak for it. The longest name that fits counts.
_PACKAGES: Mapping[str, tuple[str, float]] = {
    "torch.distributed.checkpoint": ("checkpoint", 4), "torch.serialization": ("checkpoint", 3),
    "deepspeed.checkpoint": ("checkpoint", 4), "deepspeed.runtime.checkpoint_engine": ("checkpoint", 4),
    "deepspeed.runtime.config": ("config", 3), "deepspeed.runtime.zero.config": ("config", 1),
    "deepspeed.ops.op_builder": ("environment", 3), "megatron.core.dist_checkpointing": ("checkpoint", 4),
    "safetensors": ("checkpoint", 3), "safetensors_rust": ("checkpoint", 3), "orbax": ("checkpoint", 4),
    "tensorstore": ("checkpoint", 2), "flax.training.checkpoints": ("checkpoint", 3),
    "datasets": ("data", 3), "PIL": ("data", 3), "zarr": ("data", 2), "h5py": ("data", 2), "pyarrow": ("data", 2),
    "fastparquet": ("data", 3), "webdataset": ("data", 4), "streaming": ("data", 3), "litdata": ("data", 3),
    "tarfile": ("data", 2), "decord": ("data", 4), "av": ("data", 3), "cv2": ("data", 2), "soundfile": ("data", 3),
    "librosa": ("data", 3), "torchaudio": ("data", 2), "torchvision.io": ("data", 3), "lmdb": ("data", 3),
    "tifffile": ("data", 3), "nibabel": ("data", 3), "torch.utils.data": ("data", 3), "array_record": ("data", 3),
    "json.decoder": ("data", 1), "zipfile": ("data", 1), "gzip": ("data", 1), "zlib": ("data", 1), "lzma": ("data", 1),
    "csv": ("data", 2), "_csv": ("data", 2), "pandas": ("data", 1), "nvidia.dali": ("data", 3), "grain": ("data", 2),
    "torch.distributed.elastic.rendezvous": ("rendezvous", 4), "torch.distributed.rendezvous": ("rendezvous", 3),
    "torch.distributed": ("network", 1), "mpi4py": ("network", 2), "grpc": ("network", 2), "zmq": ("network", 2),
    "socket": ("network", 3), "ucp": ("network", 3), "aiohttp": ("network", 2), "asyncssh": ("network", 2),
    "paramiko": ("network", 2),
    "botocore": ("storage", 2), "boto3": ("storage", 2), "s3fs": ("storage", 2), "s3transfer": ("storage", 3),
    "gcsfs": ("storage", 2), "google.cloud.storage": ("storage", 3), "azure.storage": ("storage", 3),
    "azure.core": ("storage", 2), "minio": ("storage", 2), "fsspec": ("storage", 2), "sqlite3": ("storage", 3),
    "shutil": ("storage", 2), "filelock": ("storage", 2), "hdfs": ("storage", 3), "oss2": ("storage", 2),
    "wandb": ("hub_auth", 4), "comet_ml": ("hub_auth", 4), "mlflow": ("hub_auth", 4), "neptune": ("hub_auth", 4),
    "clearml": ("hub_auth", 3), "swanlab": ("hub_auth", 4), "aim": ("hub_auth", 2), "huggingface_hub": ("hub_auth", 3),
    "requests": ("hub_auth", 2), "urllib": ("hub_auth", 2), "urllib3": ("hub_auth", 2), "httpx": ("hub_auth", 2),
    "openai": ("hub_auth", 3), "modelscope": ("hub_auth", 2), "kaggle": ("hub_auth", 3),
    "omegaconf": ("config", 4), "hydra": ("config", 4), "argparse": ("config", 4), "click": ("config", 3),
    "typer": ("config", 3), "jsonargparse": ("config", 4), "tyro": ("config", 4), "absl.flags": ("config", 4),
    "gin": ("config", 4), "yaml": ("config", 3), "ruamel": ("config", 3), "toml": ("config", 4), "tomli": ("config", 4),
    "tomllib": ("config", 4), "configparser": ("config", 4), "pydantic": ("config", 3), "pydantic_core": ("config", 3),
    "jsonschema": ("config", 3), "marshmallow": ("config", 3), "ml_collections": ("config", 3), "dacite": ("config", 3),
    "draccus": ("config", 3), "simple_parsing": ("config", 3), "confuse": ("config", 3), "fire": ("config", 3),
    "tokenizers": ("version_mismatch", 1), "pkg_resources": ("version_mismatch", 2),
    "packaging": ("version_mismatch", 2),
    "importlib.metadata": ("environment", 2), "torch.utils.cpp_extension": ("environment", 3),
    "torch._inductor": ("environment", 1), "triton": ("environment", 1), "distutils": ("environment", 2),
    "setuptools": ("environment", 2), "ctypes": ("environment", 2), "subprocess": ("environment", 1),
    "torch._dynamo": ("user_code", 3), "torch.autograd": ("user_code", 2), "einops": ("user_code", 4),
    "jax.errors": ("user_code", 3), "flax.errors": ("user_code", 3), "equinox": ("user_code", 2),
    "numba": ("user_code", 1),
    "ray": ("node_failure", 1), "pynvml": ("gpu_hardware", 3), "habana_frameworks": ("gpu_hardware", 1),
    "pickle": ("checkpoint", 1), "_pickle": ("checkpoint", 1),
}
_SITE = re.compile(r"(?:site-packages|dist-packages"
            r"|lib/python3(?:\.\d+)?)/(?P<module>[\w/]+?)(?:/__init__)?(?:\.\w+)?$")

# What the user's own code was about, by the names of functions and files and by what the line calls.
_ABOUT = (
    (re.compile(r"(?i)(?:load|save|restore|write|read|resume|verify|find|latest)\w{0,40}(?:ckpt|checkpoint|state|weights"
            r"|snapshot)"
                r"|(?:ckpt|checkpoint)\w*|^(?:resume|restore)\b|load_state_dict|torch\.(?:load"
            r"|save)\("), "checkpoint", 2.5),
    (re.compile(r"validate_?args|parse_?args|check_?(?:args|config)|__post_init__|^validate\b|load_config|from_args"
                r"|compute_accum|(?:^|/)(?:arguments?|args|config\w*|configuration\w*|options|cli|settings)\.py$"),
     "config", 2.5),
    (re.compile(r"__getitem__|collate|_worker_loop|next_batch|read_sample|load_dataset|decode|open_shard"
                r"|(?:^|/)\w{0,60}(?:data|loader|collat|sampler)\w{0,60}\.py$|(?:^|/)data(?:sets?)?/"), "data", 2.0),
    (re.compile(r"wandb\.\w+\(|mlflow\.|snapshot_download|hf_hub_download|\blogin\("), "hub_auth", 2.0),
    (re.compile(r"init_process_group|init_distributed|rendezvous|jax\.distributed\.initialize"
            r"|setup_dist"), "rendezvous", 2.0),
    (re.compile(r"isfinite|isnan|isinf|check_nan|clip_grad|grad_norm"), "numerical", 2.0),
)


def weigh_module(module: str) -> tuple[str, float] | None:
    """What an exception of this dotted module speaks for, and how much; None = nothing is known of it."""
    while module:
        if module in _PACKAGES:
            return _PACKAGES[module]
        module = module.rpartition(".")[0]
    return None


def weigh_frames(frames: Sequence[TracebackFrame]) -> dict[str, float]:
    """Category → how much the deepest frames speak for it: the package that raised, and the user's own last place."""
    weights: dict[str, float] = {}
    for frame in frames[:-4:-1]:   # deeper ones say what; the ones above them only on whose behalf
        match = _SITE.search(frame.path)
        known = weigh_module(match["module"].replace("/", ".")) if match else None
        if known is not None:
            weights[known[0]] = max(weights.get(known[0], 0.0), known[1] * 0.6)
            break
    own = next((frame for frame in reversed(frames) if frame.is_user), None)
    if own is not None:
        for words, category, weight in _ABOUT:
            if words.search(own.function) or words.search(own.code) or words.search(own.path):
                weights[category] = max(weights.get(category, 0.0), weight)
                break
    return weights

"""Checkpoints as bytes, and a folder made of a dict: what the tests of core/checkpoints are built from."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from safelaunch.checkpoints.latest import choose, survey
from safelaunch.checkpoints.model import CheckpointTree, FoundCheckpoints
from safelaunch.checkpoints.pickled import Allowance


class DictFolder:
    """A `Folder` whose files are the items of a dict; the newest entry changed last. `links`: path → where it points.
    """

    def __init__(
        self, files: Mapping[str, bytes], unreadable: Sequence[str] = (), links: Mapping[str, str] | None = None
    ) -> None:
        self.files = dict(files)
        self.links = dict(links or {})
        for link, to in self.links.items():
            below = [name for name in self.files if name == to or name.startswith(f"{to}/")]
            self.files.update({link + name[len(to):]: self.files[name] for name in below})
        self.unreadable = unreadable
        self.allowance = Allowance()
        self.reads: list[str] = []

    def names(self, path: str) -> Sequence[str]:
        self._check(path)
        prefix = f"{path}/" if path else ""
        return sorted({name[len(prefix) :].split("/")[0] for name in self.files if name.startswith(prefix)})

    def is_dir(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self.files)

    def size(self, path: str) -> int | None:
        return len(self.files[path]) if path in self.files else None

    def read(self, path: str, start: int, length: int) -> bytes:
        self._check(path)
        self.reads.append(path)
        content = self.files[path]
        at = start if start >= 0 else max(len(content) + start, 0)
        return content[at : at + length]

    def link(self, path: str) -> str | None:
        return self.links.get(path)

    def mtime_s(self, path: str) -> float | None:
        """A folder changes when the last name in it is made."""
        path = self.links.get(path, path)
        made: dict[str, float] = {}
        for place, name in enumerate(self.files):
            if name.startswith(f"{path}/"):
                made.setdefault(name[len(path) + 1 :].split("/")[0], float(place))
        return float(list(self.files).index(path)) if path in self.files else max(made.values(), default=None)

    def _check(self, path: str) -> None:
        if path in self.unreadable:
            raise PermissionError(13, "Permission denied", path)


def latest_complete(folder: CheckpointTree, format: str, pattern: str | None = None) -> FoundCheckpoints:
    """The newest whole checkpoint, older ones, and what was skipped; raises as a survey does."""
    return choose(survey(folder, format, pattern))


def torch_file(payload: bytes = b"weights", told: Mapping[str, int] | None = None) -> bytes:
    """A zip laid out as torch.save lays it out; `told` are further keys of its dictionary, such as step: 100."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"version": 1, **(told or {})}, protocol=2))
        archive.writestr("archive/data/0", payload)
        archive.writestr("archive/version", b"3\n")
    return made.getvalue()


def archive_of(*members: str) -> bytes:
    """A zip with these members."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in members:
            archive.writestr(name, b"x")
    return made.getvalue()


class FloatStorage:
    """Stands for torch.FloatStorage, 4 bytes an element."""


class _OldPickler(pickle.Pickler):
    def persistent_id(self, obj: object) -> tuple[object, ...] | None:
        return ("storage", FloatStorage, "94001", "cpu", 3, None) if isinstance(obj, FloatStorage) else None


def old_torch_file(told: Mapping[str, int] | None = None) -> bytes:
    """The form that torch.save wrote before PyTorch 1.6: five pickles, then the storages."""
    made = io.BytesIO()
    for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(value, made, protocol=2)
    _OldPickler(made, protocol=2).dump({"weights": FloatStorage(), **(told or {})})
    pickle.dump(["94001"], made, protocol=2)
    return made.getvalue() + (3).to_bytes(8, "little") + b"\x01" * 12


@dataclass
class StorageInfo:
    """Has the fields of torch's _StorageInfo."""

    relative_path: str
    offset: int
    length: int


def dcp_metadata(shards: Sequence[tuple[str, int, int]]) -> bytes:
    """A pickle with the marks of .metadata: (file, offset, length) of each shard."""
    stored = {f"model.layer.{number}": StorageInfo(*shard) for number, shard in enumerate(shards)}
    return pickle.dumps({"state_dict_metadata": {"offset": 7}, "storage_data": stored}, protocol=4)


def dcp_folder(path: str, ranks: int = 2) -> dict[str, bytes]:
    """A distributed checkpoint: two shards in each rank's file."""
    files = [f"__{rank}_0.distcp" for rank in range(ranks)]
    shards = [shard for name in files for shard in ((name, 0, 30), (name, 30, 12))]
    return {f"{path}/{name}": b"\x02" * 42 for name in files} | {f"{path}/.metadata": dcp_metadata(shards)}


def deepspeed_folder(path: str, data_ranks: int = 2, model_ranks: int = 2) -> dict[str, bytes]:
    """A ZeRO stage 1 checkpoint."""
    files = {f"{path}/mp_rank_{mp:02d}_model_states.pt": torch_file() for mp in range(model_ranks)}
    for mp in range(model_ranks):
        for dp in range(data_ranks):
            files[f"{path}/bf16_zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt"] = torch_file()
    return files


def megatron_folder(path: str, tensor: int = 2, pipeline: int = 2) -> dict[str, bytes]:
    """The mp_rank_ layout with a distributed optimizer."""
    return {
        f"{path}/mp_rank_{tp:02d}_{pp:03d}/{name}": torch_file()
        for tp in range(tensor)
        for pp in range(pipeline)
        for name in ("model_optim_rng.pt", "distrib_optim.pt")
    }


def megatron_dist_folder(path: str) -> dict[str, bytes]:
    """The torch_dist layout."""
    return dcp_folder(path) | {
        f"{path}/common.pt": torch_file(),
        f"{path}/metadata.json": b'{"sharded_backend": "torch_dist", "sharded_backend_version": 1}',
    }

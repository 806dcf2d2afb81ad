"""What a site's Slurm says of itself, as values. An answer that cannot be read is None: unknown, never "no"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MOST_CHARS = 1 << 20     # of an answer; a configuration has 10 kB
LIMIT_FORMAT = "account,partition,qos,maxsubmit"   # of sacctmgr --parsable2
QOS_FORMAT = "name,maxsubmitpu"
UNSET = ("", "(null)", "none", "n/a", "null", "unset")


@dataclass(frozen=True)
class SiteLimit:
    """How many jobs an association, or a QOS that one may use, lets one have; None = any number."""

    where: str
    max_submit: int | None


@dataclass(frozen=True)
class SiteAnswers:
    """All answers; None = no answer, or one that cannot be read. `plain` and `dependent`: what `sbatch --test-only`
    said without and with --dependency; "" = it would take the job.
    """

    config: Mapping[str, str] | None = None
    partition: Mapping[str, str] | None = None
    limits: tuple[SiteLimit, ...] | None = None
    plain: str | None = None
    dependent: str | None = None

    def word(self, key: str) -> str | None:
        """A value of the configuration, "" where it is unset; None = not known."""
        return self.config.get(key.lower()) if self.config is not None else None

    def seconds(self, key: str) -> int | None:
        """The same of "300 sec"; None = not known, or no number of seconds."""
        match = re.fullmatch(r"([0-9]{1,9})(?: sec)?", self.word(key) or "")
        return int(match[1]) if match else None

    def words(self, key: str) -> tuple[str, ...] | None:
        """The same of "a,b=1", in small letters."""
        value = self.word(key)
        return None if value is None else tuple(filter(None, (word.strip().lower() for word in value.split(","))))

    def of_partition(self, key: str) -> str | None:
        """A value of the partition, "" where it is unset; None = not known."""
        return self.partition.get(key.lower()) if self.partition is not None else None


def parse_config(text: str) -> dict[str, str] | None:
    """KEY → value of `scontrol show config`, keys in small letters; None = it is no configuration."""
    pairs = re.findall(r"^([A-Za-z_]{1,64}) {0,64}= ?(.{0,4096})$", text[:MOST_CHARS], re.MULTILINE)
    found = {key.lower(): _set(value) for key, value in pairs}
    return found if "slurmdtimeout" in found or "slurm_version" in found else None


def parse_partition(text: str, name: str | None) -> dict[str, str] | None:
    """The partition of that name, else the default one, of `scontrol --oneliner show partition`; None = neither."""
    rows = [{key.lower(): _set(value) for key, value in re.findall(r"(?:^| )([A-Za-z_]{1,64})=(\S{0,4096})", line)}
            for line in text[:MOST_CHARS].splitlines() if line.startswith("PartitionName=")]
    wanted = [row for row in rows if (row["partitionname"] == name if name else row.get("default") == "YES")]
    return wanted[0] if wanted else None


def parse_limits(associations: str, qos: str) -> tuple[SiteLimit, ...] | None:
    """The limits of `sacctmgr --parsable2 show associations` (LIMIT_FORMAT) and of their QOS (`show qos`, QOS_FORMAT);
    None = one of the answers has another form.
    """
    limits, used = [], set()
    for line in associations[:MOST_CHARS].splitlines():
        words = line.split("|")
        if len(words) != 4:
            return None
        account, partition, names, submit = words
        used.update(names.split(","))
        where = f"account {account}" + (f" in {partition}" if partition else "")
        limits.append(SiteLimit(where, _count(submit)))
    for line in qos[:MOST_CHARS].splitlines():
        words = line.split("|")
        if len(words) != 2:
            return None
        if words[0] in used:
            limits.append(SiteLimit(f"QOS {words[0]}", _count(words[1])))
    return tuple(limits)


def _count(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _set(value: str) -> str:
    value = value.strip()
    return "" if value.lower() in UNSET else value

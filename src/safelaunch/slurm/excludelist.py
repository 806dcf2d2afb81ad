"""A run's exclude list as Slurm takes it: the user's own nodes and the run's, without names that Slurm does not know.

Slurm refuses the whole list for one such name, for instance of a node that was taken out of service.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from safelaunch.base.model import NO_SUCH_NODE as NO_SUCH_NODE
from safelaunch.slurm import nodefold, nodeset


def unknown_names(names: Iterable[str], there: Collection[str] | None) -> tuple[str, ...]:
    """The names that are not among the nodes `there`, each once. Nothing is guessed: () where Slurm does not say what
    is there (None, or none at all).
    """
    return tuple(dict.fromkeys(name for name in names if name not in there)) if there else ()


def asked_nodes(sbatch: Iterable[tuple[str, str | None]]) -> frozenset[str]:
    """The nodes that the user wants by name (slurm.nodelist)."""
    return frozenset(nodeset.expand_own(dict(sbatch).get("nodelist")))


class ExcludeList(NamedTuple):
    """The part of every list of a run beside its exclusions: the user's `own` nodes, without names `unknown` to Slurm.
    Nodes that the user `asked` for stay out of it: Slurm refuses a job that both requires and excludes a node.
    """

    own: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()

    @staticmethod
    def of(sbatch: Iterable[tuple[str, str | None]]) -> ExcludeList:
        """By the run's own options of sbatch."""
        return ExcludeList(nodeset.expand_own(dict(sbatch).get("exclude")), asked=asked_nodes(sbatch))

    def without(self, names: Iterable[str]) -> ExcludeList:
        """The list from now on, when Slurm does not know these names."""
        return self._replace(unknown=self.unknown | set(names))

    def gone(self, names: Iterable[str], there: Collection[str] | None) -> tuple[str, ...]:
        """Of the nodes that a list with `names` holds, those that are not `there`."""
        return unknown_names((name for name in (*names, *self.own) if name not in self.unknown), there)

    def text(self, names: Iterable[str]) -> str:
        """For ExcNodeList: a list with these nodes. The user's own stay: an update replaces the whole list."""
        kept = (*(name for name in names if name not in self.asked), *self.own)
        return nodefold.fold(name for name in kept if name not in self.unknown)

    def is_in(self, names: Iterable[str], there: Collection[str]) -> bool:
        """Whether a list of Slurm's that has the nodes `there` keeps out all of `names` that can be."""
        return set(names) - self.unknown - self.asked <= set(there)

    def options(self, names: Collection[str]) -> list[str]:
        """For sbatch: an --exclude that replaces the job script's, by nothing too (22.05, measured); [] where the
        script's own will do.
        """
        return [f"--exclude={self.text(names)}"] if set(names) - self.asked or self.unknown & set(self.own) else []

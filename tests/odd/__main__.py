"""python -m tests.odd [--calls 10000] [--seed 0]: verbs, drawn by seed, on folders that are odd in one to three ways;
with --configs on train.yaml that are changed in one to four places.

A fault is a traceback (exit code 70), a verb that does not end within 120 s, more than 5 s of processor time or 300 MB,
or a control character on its way to a terminal. Each is printed with the seed that draws it again (`--calls 1 --seed
N`). The exit code is 1 after a fault. One call in 50 has a new interpreter. With TMPDIR on a tmpfs it takes half the
time.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.odd import place as places
from tests.odd.call import Said, call, import_verbs
from tests.odd.configs import mutate
from tests.odd.oddities import CKPT, CONFIG, LOG, RUN, SURROUNDINGS, WORDS, Make
from tests.odd.place import Place, make_place

KINDS: tuple[tuple[dict[str, Make], tuple[tuple[str, ...], ...]], ...] = (
    ({name: make for name, make in RUN.items() if "million" not in name}, places.OF_A_RUN), (LOG, places.OF_A_LOG),
    (CKPT, places.OF_CHECKPOINTS), (CONFIG, (*places.OF_A_CONFIG, places.OF_NOTHING[1])),
)
WEIGHTS = (5, 2, 2, 2)
NEW = 50   # one in so many
MADE: dict[Path, Place] = {}
MOST_BYTES = 3 << 30   # of a file, lest an oddity or a verb fills the disk; the largest one is laid with 2 GiB


def draw(seed: int, folder: Path) -> tuple[str, Said]:
    """What was made odd, and what a verb said to it."""
    dice = random.Random(seed)
    odd = copied_place(folder)
    table, verbs = dice.choices(KINDS, WEIGHTS)[0]
    names = dice.sample(sorted(table), dice.choice((1, 1, 2, 3)))
    for name in names:
        # Two that exclude each other.
        with contextlib.suppress(OSError, LookupError, TypeError, ValueError, RecursionError):
            table[name](odd)
    if dice.random() < 0.4:
        names.append(damage(dice, odd))
    argv = list(dice.choice(verbs if dice.random() < 0.8 else (*places.ALL, *WORDS)))
    around = dice.choice(sorted(SURROUNDINGS)) if dice.random() < 0.15 else "a usual day"
    is_new = around == "a usual day" and dice.randrange(NEW) == 0
    said = call(argv, odd.folder, odd.env, SURROUNDINGS.get(around, lambda: None), is_new=is_new)
    return f"{'; '.join(names)}; {around}{', a new interpreter' if is_new else ''}", said


def draw_config(seed: int, folder: Path) -> tuple[str, Said]:
    """A changed train.yaml, and what a verb said to it."""
    dice = random.Random(seed)
    odd = copied_place(folder)
    text = mutate(dice)
    (odd.folder / "train.yaml").write_bytes(text)
    argv = list(dice.choice((*places.OF_A_CONFIG, ("submit", "--dry-run", "train.yaml"))))
    return repr(text[:3000]), call(argv, odd.folder, odd.env, is_new=dice.randrange(NEW) == 0)


def copied_place(folder: Path) -> Place:
    """The folder, with all in order; made once and then copied, under its own name, which its run has kept."""
    kept = folder.parent / "kept"
    if folder not in MADE:
        MADE[folder] = make_place(folder)
        folder.rename(kept)
    if folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as old:   # deletes also what refuses it
            folder.rename(Path(old) / "old")
    shutil.copytree(kept, folder, symlinks=True)
    return copy.deepcopy(MADE[folder])


def damage(dice: random.Random, odd: Place) -> str:
    """Some bytes of some file, changed."""
    files = sorted(path for path in odd.folder.rglob("*") if path.is_file() and not path.is_symlink()
                   and path.parent.name != "bin" and path.stat().st_size < 1 << 20)
    path = dice.choice(files)
    data = bytearray(path.read_bytes())
    for _ in range(dice.choice((1, 3, 30))):
        at = dice.randrange(len(data) + 1)
        data[at:at + dice.choice((0, 1, 9))] = dice.choice(
            (b"", b"\x00", b"\xff", b"\x1b[2J", b"-1", b"1e999", b'"', b"{", b"]", b"\n", b"null", dice.randbytes(3)))
    path.write_bytes(data)
    return f"damaged {path.relative_to(odd.folder)}"


def main() -> int:
    """1 after a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--configs", action="store_true")
    options = parser.parse_args()
    codes: collections.Counter[int | None] = collections.Counter()
    faults, longest_s, most_cpu_s, most_kb, start_s = 0, 0.0, 0.0, 0, time.monotonic()
    import_verbs()
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    with tempfile.TemporaryDirectory(prefix="odd-") as folder:
        for seed in range(options.seed, options.seed + options.calls):
            what, said = (draw_config if options.configs else draw)(seed, Path(folder) / "place")
            codes[said.code] += 1
            longest_s, most_cpu_s = max(longest_s, said.took_s), max(most_cpu_s, said.cpu_s)
            most_kb = max(most_kb, said.most_kb)
            if found := said.faults():
                faults += 1
                print(f"seed {seed}: {', '.join(found)}: {what}\n  {said}", flush=True)
    print(f"{options.calls} calls from seed {options.seed} in {time.monotonic() - start_s:.0f} s: {faults} faults; the "
          f"longest took {longest_s:.1f} s, the dearest {most_cpu_s:.1f} s of processor time, the largest had "
          f"{most_kb >> 10} MB; exit codes {dict(codes)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

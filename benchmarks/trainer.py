"""A training that does nothing but die: `trainer.py DIR LAUNCHES`, standard library only, for every launcher.

Each rank appends the time of its first line to DIR/first_N and that of its death to DIR/dead_N: nanoseconds since 1970
and the number of the launch, 32 bytes a line. All ranks die by SIGKILL at the same moment, once all have come up, so
that no launcher has to kill any. The launch after LAUNCHES deaths ends with 0. Rank 0 leaves a checkpoint each time:
progress, as a healthy run makes it.
"""

import time

FIRST_LINE_NS = time.time_ns()

import os  # noqa: E402 - the first line of the training is the first thing it does
import signal  # noqa: E402
import sys  # noqa: E402

LINE_BYTES = 32
POLL_S = 0.005
LIFE_S = 0.25    # the launcher has settled, and a supervisor has nothing left to do from the start


def main() -> int:
    """The exit code of the last launch; the others do not return."""
    folder, launches = sys.argv[1], int(sys.argv[2])
    rank = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])
    world = int(os.environ.get("WORLD_SIZE") or os.environ["SLURM_NTASKS"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)   # sent by srun when another rank was faster by a millisecond
    number = size(f"{folder}/first_{rank}") // LINE_BYTES
    stamp(f"{folder}/first_{rank}", FIRST_LINE_NS, number)
    print(f"step {number} loss 0.5 rank {rank}", flush=True)
    if number >= launches:
        return 0
    wait_for_moment(folder, rank, world, number)
    stamp(f"{folder}/dead_{rank}", time.time_ns(), number)
    os.kill(os.getpid(), signal.SIGKILL)
    return 1


def stamp(path: str, t_ns: int, number: int) -> None:
    """Append a line in one write."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{t_ns} {number}".ljust(LINE_BYTES - 1).encode() + b"\n")
    os.close(file)


def wait_for_moment(folder: str, rank: int, world: int, number: int) -> None:
    """Return when it is time to die: rank 0 names the moment once every rank has come up."""
    moment = f"{folder}/moment_{number}"
    if rank == 0:
        while not all(size(f"{folder}/first_{other}") > number * LINE_BYTES for other in range(world)):
            time.sleep(POLL_S)
        checkpoint(f"{folder}/ckpt", number + 1)
        with open(f"{moment}.new", "w") as file:
            file.write(str(time.time() + LIFE_S))
        os.replace(f"{moment}.new", moment)
    while not os.path.exists(moment):
        time.sleep(POLL_S)
    with open(moment) as file:
        time.sleep(max(0.0, float(file.read()) - time.time()))


def checkpoint(folder: str, step: int) -> None:
    """Leave a checkpoint of this step, and no older one: a real training keeps a few, not a hundred."""
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/new", "w") as file:
        file.write("weights\n")
    os.replace(f"{folder}/new", f"{folder}/step_{step}.txt")
    if step > 2:
        os.unlink(f"{folder}/step_{step - 2}.txt")


def size(path: str) -> int:
    """Bytes of a file; 0 = there is none yet."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    sys.exit(main())

"""A training without a framework: same steps, same losses, whenever and wherever it is resumed. steps.py runs it.

Every rank prints `step 12 loss 0.123456 rank 3`. The loss comes from a state that each step changes and a checkpoint
carries, so a run that resumes from the wrong place, or skips a step, prints other losses. The flags make it fail the
ways real trainings fail. Standard library only; runs under any python3 >= 3.9, alone, under srun or under torchrun.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]   # without enumerations, which take 5 ms
import os
import sys
import time
import zlib

# Tests start a thousand ranks. What only some of them need (17 of 47 ms) is imported where it is used.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

FIRST_STATE = 20210601
_POLL_S, _MOST_POLL_S = 0.002, 0.02


def next_state(state: int, step: int) -> int:
    """The state after a step."""
    return zlib.crc32(f"{state} {step}".encode())


def loss_of(state: int, step: int) -> float:
    """The loss that a step prints: falls with the step, wobbles with the state."""
    return 4.0 / (1.0 + 0.02 * step) + (state % 10_000) / 1e5


def losses_until(steps: int) -> dict[int, str]:
    """What an undisturbed run prints: step → loss."""
    state, found = FIRST_STATE, {}
    for step in range(1, steps + 1):
        state = next_state(state, step)
        found[step] = f"{loss_of(state, step):.6f}"
    return found


class Options:
    """The command line, word by word: `--step-time 0.1` is `step_time`. argparse would take 15 ms of each start."""

    # Ends, counted in steps; a rank or an attempt: -1 and 0 mean all.
    steps: int = 20
    step_time: float = 0.01
    save_every: int = 5
    ckpt: str | None = None          # rank 0 writes step_00000012.pt here
    load: str | None = None
    die_at: int | None = None        # end at the start of this step, before it prints
    die_rank: int = 0
    die_attempt: int = 1
    die_signal: str = "KILL"         # KILL, SEGV, TERM, ...
    exit_code: int | None = None     # exit with it instead of dying of a signal
    bug: bool = False                # raise an exception instead
    die_node: str | None = None      # every rank on this node ends, in every attempt, after ...
    die_after: float = 1.0           # ... so many seconds; with --raise: an I/O error there, at --die-at
    fail_always: bool = False        # raise before the first step
    eat_at: int | None = None        # take memory at this step, for good ...
    eat_mb: int = 1000               # ... so much of it
    hang_at: int | None = None       # stand still at the start of this step
    ignore_term: bool = False
    handle_usr2: bool = False        # on SIGUSR2: save, exit 0
    handle_term: bool = False        # on SIGTERM: the same
    watch_kill_file: bool = False    # once $SAFELAUNCH_KILL_FILE exists: the same
    until: str | None = None         # once this file exists, the step in it is the last one, or one soon after:
                                     # FILE.agreed says which
    shards: int = 0                  # checkpoints are folders of so many files, laid out as DeepSpeed's
    pair: bool = False               # ... are optimizer_12.pt and later model_12.pt, beside resnet50_best.pth
    refuse_load: int | None = None   # fail when told to load this step's checkpoint
    spoil: str | None = None         # what befalls the checkpoint of ... (SPOILS)
    spoil_step: int | None = None    # ... this step, right after it was written
    stamp_dir: str | None = None     # append `time_ns attempt step` per step to DIR/rank_0003
    lockstep: str | None = None      # no rank starts a step before all ranks ended the last one, as files in this
                                     # folder tell; `tcp`: as they tell each other


def parse_args(argv: list[str] | None = None) -> Options:
    """What the words say; exit code 2 where one says nothing."""
    options, words = Options(), iter(sys.argv[1:] if argv is None else argv)
    for word in words:
        name = "bug" if word == "--raise" else word[2:].replace("-", "_")
        kind = Options.__annotations__.get(name) if word.startswith("--") else None
        try:
            if kind is None:
                raise ValueError("no such option")
            value = True if kind == "bool" else _READERS[kind.partition(" ")[0]](next(words))
            if name == "spoil" and value not in SPOILS:
                raise ValueError(f"expected one of {', '.join(SPOILS)}")
        except (ValueError, StopIteration) as wrong:
            sys.stderr.write(f"steps.py: {word}: {wrong}\n")
            sys.exit(2)
        setattr(options, name, value)
    return options


_READERS = {"int": int, "float": float, "str": str}


def first_in_env(names: tuple[str, ...], default: int) -> int:
    """The first of these variables that is set."""
    return int(next((os.environ[name] for name in names if os.environ.get(name)), default))


class Trainer:
    """One rank."""

    def __init__(self, args: Options) -> None:
        self.args = args
        self.rank = first_in_env(("RANK", "SLURM_PROCID"), 0)
        self.world = first_in_env(("WORLD_SIZE", "SLURM_NTASKS"), 1)
        self.attempt = first_in_env(("SAFELAUNCH_ATTEMPT",), 1)
        self.step, self.state = 0, FIRST_STATE
        self.die_s = time.monotonic() + args.die_after
        self.asked_to_stop = False
        self.eaten: list[bytearray] = []
        self.ring: Ring | None = None

    def run(self) -> int:
        """Trains; the exit code."""
        self.set_signals()
        if self.args.fail_always:
            raise RuntimeError("this training always fails before its first step")
        if self.args.load:
            self.step, self.state = load(self.args.load)
            if self.step == self.args.refuse_load:
                raise RuntimeError(f"Error(s) in loading state_dict for Model: Missing key(s) in {self.args.load}")
            self.say(f"resumed from {self.args.load} after step {self.step}")
        while self.step < self.last_step():
            if self.must_stop():
                self.save()
                self.leave()
                self.say(f"stopped on request after step {self.step}")
                return 0
            self.fail_if_due(self.step + 1)
            self.train_one_step()
        self.say(f"done after step {self.step}")
        return 0

    def last_step(self) -> int:
        """The step to end after, once somebody has told it. The first rank that sees it tells the others, and names a
        later step where one of them may be that far already: in lockstep none is ahead of another by more than a step.
        """
        if self.args.until and os.path.exists(self.args.until):
            with open(self.args.until) as file:
                wanted = int(file.read())
            agreed, draft = f"{self.args.until}.agreed", f"{self.args.until}.{self.attempt}.{self.rank}"
            append(draft, str(max(wanted, self.step + 2)))
            try:   # noqa: SIM105 - contextlib takes 3 ms
                os.link(draft, agreed)
            except FileExistsError:
                pass
            os.unlink(draft)
            with open(agreed) as file:
                self.args.steps, self.args.until = int(file.read()), None
        return int(self.args.steps)

    def set_signals(self) -> None:
        """Prepares for the signals that the flags name."""
        if self.args.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.args.handle_usr2:
            signal.signal(signal.SIGUSR2, self.note_request)
        if self.args.handle_term:
            signal.signal(signal.SIGTERM, self.note_request)

    def note_request(self, number: int, frame: object) -> None:
        """The handler of SIGUSR2: the step ends first."""
        self.asked_to_stop = True

    def leave(self) -> None:
        """Tell the other ranks that this one ends: they were asked to end as well, a moment later perhaps."""
        if self.args.lockstep and self.args.lockstep != "tcp":
            append(os.path.join(self.args.lockstep, str(self.attempt), f"left.{self.rank}"), "")

    def must_stop(self) -> bool:
        """Whether somebody asked for the end."""
        kill_file = os.environ.get("SAFELAUNCH_KILL_FILE") if self.args.watch_kill_file else None
        return self.asked_to_stop or bool(kill_file and os.path.exists(kill_file))

    def train_one_step(self) -> None:
        """One step: wait, stamp, print, save."""
        begun_s = time.monotonic()
        if self.args.lockstep == "tcp":
            self.ring = self.ring or Ring(self.rank, self.world)
            self.ring.wait_for_all()
        elif self.args.lockstep:
            wait_for_all(os.path.join(self.args.lockstep, str(self.attempt)), self.rank, self.world, self.step)
        left_s = self.args.step_time - (time.monotonic() - begun_s)
        if left_s > 0:
            time.sleep(left_s)
        self.step += 1
        self.state = next_state(self.state, self.step)
        self.stamp()
        self.say(f"step {self.step} loss {loss_of(self.state, self.step):.6f} rank {self.rank}")
        if self.step % self.args.save_every == 0 or self.step == self.args.steps:
            self.save()

    def fail_if_due(self, step: int) -> None:
        """Hangs, exits, raises or dies when the flags say so for this rank, node, attempt and step."""
        if self.args.die_node == os.environ.get("SLURMD_NODENAME", ""):
            if self.args.bug and step == self.args.die_at:
                raise OSError(5, "Input/output error", "/local/data/shard-0042.tar")
            if not self.args.bug and time.monotonic() > self.die_s:
                os.kill(os.getpid(), getattr(signal, f"SIG{self.args.die_signal}"))
            return
        if self.args.die_rank not in (-1, self.rank) or self.args.die_attempt not in (0, self.attempt):
            return
        if step == self.args.eat_at:
            self.eaten = [bytearray(b"x" * 1_000_000) for _ in range(self.args.eat_mb)]
        while step == self.args.hang_at:
            time.sleep(3600)
        if step == self.args.die_at:
            if self.args.exit_code is not None:
                sys.exit(self.args.exit_code)
            if self.args.bug:
                raise ValueError("too many values to unpack (expected 2)")
            os.kill(os.getpid(), getattr(signal, f"SIG{self.args.die_signal}"))
            time.sleep(3600)

    def say(self, text: str) -> None:
        """One line in one write, so that ranks that share a pipe do not mix theirs."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def stamp(self) -> None:
        """Leaves the proof that this rank was alive at this step."""
        if self.args.stamp_dir:
            os.makedirs(self.args.stamp_dir, exist_ok=True)
            path = os.path.join(self.args.stamp_dir, f"rank_{self.rank:04d}")
            append(path, f"{time.time_ns()} {self.attempt} {self.step}\n")

    def save(self) -> None:
        """Rank 0 writes the checkpoint of the current step, whole or not at all."""
        if self.rank != 0 or not self.args.ckpt or not self.step:
            return
        if self.args.shards:
            path = save_shards(self.args.ckpt, self.args.shards, self.step, self.state)
        elif self.args.pair:
            path = save_pair(self.args.ckpt, self.step, self.state)
        else:
            path = os.path.join(self.args.ckpt, f"step_{self.step:08d}.pt")
            save(path, self.step, self.state)
        if self.args.spoil and self.step == self.args.spoil_step:
            SPOILS[self.args.spoil](path)


def append(path: str, line: str) -> None:
    """Adds one line in one write."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def save(path: str, step: int, state: int) -> None:
    """A small file of the form that torch.save writes (torch.load reads it), renamed into place when it is whole."""
    import json
    import pickle
    import zipfile

    os.makedirs(os.path.dirname(path), exist_ok=True)
    unfinished = f"{path}.tmp"
    with open(unfinished, "wb") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"step": step, "state": state}, protocol=2))
            archive.writestr("archive/version", "3\n")
            archive.writestr("archive/extra/state.json", json.dumps({"step": step, "state": state}))
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def save_shards(folder: str, shards: int, step: int, state: int) -> str:
    """The folder of a checkpoint as DeepSpeed's ZeRO lays it out; `latest` names it once all files are there."""
    tag = f"global_step{step}"
    path = os.path.join(folder, tag)
    for shard in range(shards):
        save(os.path.join(path, f"zero_pp_rank_{shard}_mp_rank_00_optim_states.pt"), step, state)
    save(os.path.join(path, "mp_rank_00_model_states.pt"), step, state)
    with open(os.path.join(folder, ".latest"), "w") as file:
        file.write(tag)
    os.replace(os.path.join(folder, ".latest"), os.path.join(folder, "latest"))
    return path


def save_pair(folder: str, step: int, state: int) -> str:
    """The files of an optimizer and of a model, written one after the other, beside one of the best step so far."""
    save(os.path.join(folder, f"optimizer_{step}.pt"), step, state)
    time.sleep(0.2)   # a model takes long to write: a fault comes in between
    save(os.path.join(folder, f"model_{step}.pt"), step, state)
    if step == 10:
        save(os.path.join(folder, "resnet50_best.pth"), step, state)
    return os.path.join(folder, f"model_{step}.pt")


def truncate(path: str) -> None:
    """Leave half of a file: the writer's node died, or a quota was reached."""
    os.truncate(path, os.path.getsize(path) // 2)


def empty(path: str) -> None:
    """Leave a file of zero length: created, and its data never reached the disk."""
    os.truncate(path, 0)


def fill_with_zeros(path: str) -> None:
    """Leave a file of the right size without content: the size was journalled, the data was not."""
    size = os.path.getsize(path)
    os.truncate(path, 0)
    os.truncate(path, size)


def lose_shard(path: str) -> None:
    """Remove one rank's file."""
    os.unlink(os.path.join(path, "zero_pp_rank_1_mp_rank_00_optim_states.pt"))


def cut_shard(path: str) -> None:
    """Leave half of one rank's file."""
    truncate(os.path.join(path, "zero_pp_rank_1_mp_rank_00_optim_states.pt"))


SPOILS = {"truncated": truncate, "empty": empty, "zeros": fill_with_zeros, "shard-lost": lose_shard,
          "shard-truncated": cut_shard}


def load(path: str) -> tuple[int, int]:
    """(step, state) of a checkpoint."""
    import json
    import zipfile

    if os.path.isdir(path):
        path = os.path.join(path, "mp_rank_00_model_states.pt")
    with zipfile.ZipFile(path) as archive:
        found = json.loads(archive.read("archive/extra/state.json"))
    return found["step"], found["state"]


def wait_for_all(folder: str, rank: int, world: int, step: int) -> None:
    """Returns when every rank of this attempt has ended `step`; never, when one of them died: as a collective would."""
    os.makedirs(folder, exist_ok=True)
    append(os.path.join(folder, f"{step}.{rank}"), "")
    waiting = [[os.path.join(folder, f"{what}.{other}") for what in (step, "left")] for other in range(world)]
    every_s = _POLL_S
    while waiting:
        waiting = [paths for paths in waiting if not any(map(os.path.exists, paths))]
        if waiting:
            time.sleep(every_s)
            every_s = min(1.05 * every_s, _MOST_POLL_S)   # for one that died they wait for half a minute


class Ring:
    """A collective over TCP: rank 0 hears each rank and answers once all have called. A lost peer is waited for."""

    def __init__(self, rank: int, world: int) -> None:
        import socket

        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.peers: list[socket.socket] = []
        if rank == 0:
            with socket.create_server(("", place[1]), backlog=world) as door:
                self.peers = [door.accept()[0] for _ in range(world - 1)]
            return
        while not self.peers:
            try:
                self.peers = [socket.create_connection(place)]
            except OSError:   # rank 0 is not there yet
                time.sleep(_POLL_S)
        self.peers[0].settimeout(None)
        self.is_caller = True

    is_caller = False

    def wait_for_all(self) -> None:
        """Returns when every rank has called as often as this one."""
        if self.is_caller:
            self.send(self.peers[0])
        for peer in self.peers:
            self.receive(peer)
        for peer in () if self.is_caller else self.peers:
            self.send(peer)

    def send(self, peer: socket.socket) -> None:
        """One call; into the void where the peer has gone."""
        try:
            peer.sendall(b".")
        except OSError:
            time.sleep(3600)

    def receive(self, peer: socket.socket) -> None:
        """One call; for ever where the peer has gone."""
        try:
            if peer.recv(1):
                return
        except OSError:
            pass
        time.sleep(3600)

"""A training of numbers: prints steps, saves DIR/step_N.json, fails once where asked, and notices a second writer."""
import argparse
import json
import os
import pathlib
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--every", type=int, default=5)
parser.add_argument("--pause", type=float, default=float(os.environ.get("TRAIN_PAUSE", "0.1")))
parser.add_argument("--dir", default="ckpt")
parser.add_argument("--load", default="")
parser.add_argument("--auto", action="store_true", help="find the newest checkpoint by itself")
parser.add_argument("--die-at", type=int, default=int(os.environ.get("TRAIN_DIE_AT", "0")))
parser.add_argument("--exit-code", type=int, default=1)
args, rest = parser.parse_known_args()
rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) or 0)
folder = pathlib.Path(args.dir)
folder.mkdir(parents=True, exist_ok=True)
if (tasks := int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))) > 1:   # ranks begin together, as those of a real one do
    here = pathlib.Path("/tmp", "-".join(["ranks", *(os.environ[f"SLURM_{name}"] for name in ("JOB_ID", "STEP_ID"))]))
    here.mkdir(exist_ok=True)
    (here / os.environ["SLURM_PROCID"]).touch()
    end_s = time.monotonic() + 20
    while len(list(here.iterdir())) < tasks and time.monotonic() < end_s:
        time.sleep(0.01)
if args.auto and not args.load:
    found = sorted(folder.glob("step_*.json"), key=lambda one: int(one.stem[5:]))
    args.load = str(found[-1]) if found else ""
start = json.loads(pathlib.Path(args.load).read_text())["step"] if args.load else 0
print(f"starts at {start} (load={args.load!r}) host={os.uname().nodename} rest={rest}", flush=True)
pulse = folder / ".writer"
if rank == 0 and pulse.exists() and time.time() - pulse.stat().st_mtime < 2 * args.pause:
    print("SECOND WRITER", flush=True)
for step in range(start + 1, args.steps + 1):
    time.sleep(args.pause)
    print(f"iteration {step}/{args.steps} loss: {3.0 / step:.4f}", flush=True)
    if rank == 0:
        pulse.write_text("")
    if args.die_at == step and rank == int(os.environ.get("TRAIN_DIE_RANK", "0")) and not (folder / "died").exists():
        (folder / "died").write_text("")
        if os.environ.get("TRAIN_DIE_BY") == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stderr.write("RuntimeError: a made error\n")
        sys.exit(args.exit_code)
    if step % args.every == 0 and rank == 0:
        part = folder / f".tmp_{step}"
        part.write_text(json.dumps({"step": step}))
        part.rename(folder / f"step_{step}.json")
if rank == 0:
    pulse.unlink(missing_ok=True)
print("training done", flush=True)

"""The program behind the stubs: `python -I -S …/main.py BIN_DIR sbatch --parsable job.slurm`."""

import os
import sys

root = os.path.abspath(__file__).rsplit("/safelaunch/", 1)[0]
for name in ("safelaunch", "safelaunch.node"):   # without their own code, which takes longer than all the rest
    package = type(sys)(name)
    package.__path__ = [os.path.join(root, *name.split("."))]
    sys.modules[name] = package

from safelaunch.node.standin.command import main  # noqa: E402 - as a module, which is compiled once

sys.exit(main(sys.argv[1:]))

"""A long script is checked in a moment: its time grows with its length, not with the square of it."""

from __future__ import annotations

from safelaunch.config.scripts.scripthints import script_hints
from safelaunch.config.scripts.scriptlayer import read_script
from safelaunch.config.shell.shelllines import split_statements
from tests.effort import at_rest_s
from tests.tables import each

MOST_S = 0.25   # of a quiet machine; a check of a small script takes 0.1 s beside it
HEAD = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=2\n"
LINES = "".join(f'export VAR_{number}="value {number}" # of many\n' for number in range(20_000))
WORDS = " ".join(f"--option_{number} \"$VALUE{number}\"" for number in range(10_000))
FOLDED = WORDS.replace(" --", " \\\n  --")


@each("text", [
    f"{HEAD}{LINES}srun python a.py\n", f"{HEAD}srun python a.py {WORDS}\n",
    f"{HEAD}srun python a.py {FOLDED}\n",
    f"{HEAD}cat >x <<'END'\n{'words of a text ' * 125_000}\nEND\nsrun python a.py\n",
    f"{HEAD}A='{'words of a text' * 60_000}'\nsrun python a.py\n", f"{HEAD}echo {'x' * 1_000_000}\n",
], ids=["20,000 lines", "20,000 words", "20,000 words on 10,000 lines", "2 MB that it writes", "a long quote",
        "a long word"])
def test_a_long_script_is_read_in_a_moment(text: str) -> None:
    def read() -> None:
        split_statements.cache_clear()
        read_script(text, "file", "job.slurm")
        script_hints(text, "job.slurm", {"nodes": 2, "ntasks-per-node": 2})

    assert at_rest_s(read, MOST_S) <= MOST_S

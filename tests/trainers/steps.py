"""A training without a framework (stepping.py, beside this file):

    python steps.py --steps 100 --step-time 0.01 --save-every 10 --ckpt DIR [--load DIR/step_00000050.pt]

Python compiles what it is told to run at each start, and keeps the bytecode of what that imports: 10 ms for each of a
thousand ranks.
"""

import sys

from stepping import Trainer, parse_args

sys.exit(Trainer(parse_args()).run())

"""What a job script starts: `lead RUN_DIR LOCAL ROLE`, a supervisor; `bring SPOOL RUN_DIR`, a courier.

By its path in the library's copy on the node, isolated (`python -I -S`).
"""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/safelaunch/")[0])

if __name__ == "__main__":
    if sys.argv[1] == "lead":
        from safelaunch.loop import main
    else:
        from safelaunch.run.io.courier import main
    main(sys.argv[2:])

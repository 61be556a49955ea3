"""Settings of `make chaos`: the number of examples, and statistics of the simulated worlds of this process.

RLJOB_CHAOS is the number of hypothesis examples of a full run; without it a smaller part is run, as in `make test`.
"""

import os
from collections import Counter

EXAMPLES = int(os.environ.get("RLJOB_CHAOS", "0"))
FULL = EXAMPLES > 0
HISTORIES, COMBINATIONS = (EXAMPLES // 5, EXAMPLES - EXAMPLES // 5) if FULL else (30, 20)
"""Examples of the state machine, and of combinations of faults."""
PARTS = -(-COMBINATIONS // 500)
"""Number of tests that the combinations are divided into, so that they run on all cores."""
STATISTICS: Counter[str] = Counter()

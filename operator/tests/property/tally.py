"""The number of examples, and statistics of the simulated worlds of this process, for `make chaos`.

RLJOB_CHAOS is the number of hypothesis examples of a full run; without it a smaller part is run, as in `make test`.
"""

import os
from collections import Counter

EXAMPLES = int(os.environ.get("RLJOB_CHAOS", "0"))
FULL = EXAMPLES > 0
HISTORIES, MIXTURES = (EXAMPLES // 5, EXAMPLES - EXAMPLES // 5) if FULL else (60, 40)
"""Examples of the state machine, and of disturbances mixed into stories."""
PARTS = -(-MIXTURES // 500)
"""Number of tests that the mixtures are divided into, so that they run on all cores."""
TALLY: Counter[str] = Counter()

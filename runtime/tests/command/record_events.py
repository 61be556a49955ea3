"""Write the event file of test_tensorboard.py by the writer that PyTorch programs use. Needs torch and tensorboard.

python runtime/tests/command/record_events.py FOLDER && base64 -w 100 FOLDER/events.* > events.tfevents.b64
"""

from __future__ import annotations

import sys

from torch.utils.tensorboard import SummaryWriter  # type: ignore[import-not-found, unused-ignore]

with SummaryWriter(sys.argv[1]) as writer:
    writer.add_text("config", "not a scalar")
    for step, score in ((1, 0.25), (2, 0.5), (3, 1.0)):
        writer.add_scalar("critic/score/mean", score, step)
        if step < 3:
            writer.add_scalar("perf/throughput", 128.0 * step, step)
    writer.add_scalar("new_style", 0.75, 2, new_style=True)

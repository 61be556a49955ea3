"""The Grafana dashboards as data, and the JSON files of the chart that `make generate` writes from them.

A package of its own, because five dashboards are too much for one file of `scripts`: `parts` defines the elements of a
dashboard, `queries` builds PromQL, and each dashboard is a module.
"""

from __future__ import annotations

from scripts.dashboards.fleet import FLEET
from scripts.dashboards.job import JOB_BOARD
from scripts.dashboards.npu import NPU
from scripts.dashboards.operator import OPERATOR
from scripts.dashboards.parts import board_text
from scripts.dashboards.rollout import ROLLOUT

BOARDS = (FLEET, JOB_BOARD, ROLLOUT, NPU, OPERATOR)


def board_files() -> dict[str, str]:
    """Return each dashboard's file name and JSON."""
    return {f"{board.name}.json": board_text(board) for board in BOARDS}

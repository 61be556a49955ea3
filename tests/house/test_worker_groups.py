"""Code names the worker group that it means, or looks at each: a job may have more than one."""

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "operator/src/rljob"
TYPES = SOURCE / "api/v1alpha1.py"
"""Has the names: `trainer_group`, `rollout_group`."""


def test_no_code_takes_a_worker_group_by_its_number() -> None:
    taken = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path != TYPES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "worker_groups"
    ]
    assert taken == []

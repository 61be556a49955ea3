"""The verl that the operator's image carries is that of the runtime images, file by file."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"


def pins(lock: str) -> dict[str, str]:
    """Return name -> version and hashes."""
    found = re.findall(r"^([a-z0-9-]+)(==.*(?:\n +--hash=.*)+)", (REQUIREMENTS / lock).read_text(), re.MULTILINE)
    return dict(found)


@pytest.mark.parametrize("lock", ["runtime-cpu.txt", "runtime-ascend-aarch64.txt", "runtime-ascend-x86_64.txt"])
def test_it_is_that_of_a_runtime_image(lock: str) -> None:
    carried = pins("runtime-verl.txt")
    assert set(carried) == {"transferqueue", "verl"}
    assert carried.items() <= pins(lock).items()

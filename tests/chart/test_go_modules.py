"""The bill of materials of a Go program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from scripts.release import modules
from scripts.release.images import OWN, ROOT

(FAKENPU,) = (image for image in OWN if image.go)
FOLDER = ROOT / FAKENPU.context
MODULE = """module example.com/x

go 1.26.0

require example.com/one v1.2.3

require (
\texample.com/two/v2 v2.0.0+incompatible // indirect
)
"""
SUMS = """example.com/one v1.2.3 h1:AAEC
example.com/one v1.2.3/go.mod h1:AAAA
example.com/two/v2 v2.0.0+incompatible h1:AwQF
"""


def test_it_has_every_module_with_its_hash(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text(MODULE)
    (tmp_path / "go.sum").write_text(SUMS)
    found = modules.bill(tmp_path, "x", "9.8.7")
    rows = [(each["name"], each["version"], each["purl"], each["hashes"][0]["content"]) for each in found["components"]]
    assert rows == [
        ("example.com/one", "v1.2.3", "pkg:golang/example.com/one@v1.2.3", "000102"),
        (
            *("example.com/two/v2", "v2.0.0+incompatible"),
            *("pkg:golang/example.com/two/v2@v2.0.0%2Bincompatible", "030405"),
        ),
    ]
    (tmp_path / "go.sum").write_text("")
    with pytest.raises(ValueError, match=r"no hash of example.com/one v1.2.3; run `go mod tidy`"):
        modules.bill(tmp_path, "x", "9.8.7")


def test_the_bill_of_the_devices_is_that_of_their_go_mod() -> None:
    rows = re.findall(r"(?m)^\t(\S+) (v\S+)", (FOLDER / "go.mod").read_text())
    found = modules.bill(FOLDER, "fakenpu", "9.8.7")["components"]
    assert [(each["name"], each["version"]) for each in found] == rows
    assert len({each["bom-ref"] for each in found}) == len(rows) > 30


def test_the_bill_has_what_the_program_is_built_from() -> None:
    listed = subprocess.run(
        ["go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", "."],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    used = {tuple(line.split()) for line in listed.splitlines() if " v" in line}
    assert used
    assert used <= {(each["name"], each["version"]) for each in modules.bill(FOLDER, "fakenpu", "1")["components"]}

"""`rljob validate` rejects an invalid manifest in a file with the core's message, and never crashes."""

from pathlib import Path

import pytest
from corpus import SAMPLE
from corpus.bad import Bad

from rljob.api import yaml11
from rljob.cli.main import main


@pytest.mark.parametrize("bad", SAMPLE.values(), ids=SAMPLE.keys())
def test_a_bad_file_is_refused(bad: Bad, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    manifest = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "bad"}, "spec": bad.spec}
    path.write_text(yaml11.dump_all([manifest]))
    assert main(["validate", "-f", str(path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"{path}: bad: {bad.field}: ")
    assert bad.message in lines[0]

"""Tables of accelerator classes from files: the chart's, a ConfigMap, and invalid ones."""

from pathlib import Path

import pytest
import yaml

from rljob.control.accelerator_files import SIZE_MAX, AcceleratorsError, read_files, read_folder
from rljob.render.accelerators import BUILT_IN


def write(path: Path, document: object) -> Path:
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_the_last_file_of_a_folder_wins(tmp_path: Path) -> None:
    write(tmp_path / "20-values.yaml", {"atlas-a2": {"hbmGiBPerDie": 48}})
    write(tmp_path / "10-release.yaml", {"atlas-a2": {"hbmGiBPerDie": 32}})
    write(tmp_path / "notes.txt", "no table")
    rows = read_folder(tmp_path)
    assert rows["atlas-a2"].hbm_gib_per_die == 48
    assert set(rows) == set(BUILT_IN)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read_files([write(tmp_path / "a.yaml", "")]) == BUILT_IN


def test_the_operators_own_config_map_is_a_table(tmp_path: Path) -> None:
    data = {"20-values.yaml": "atlas-a2: {hbmGiBPerDie: 32}\n", "10-release.yaml": ""}
    rows = read_files([write(tmp_path / "cm.yaml", {"kind": "ConfigMap", "data": data})])
    assert rows["atlas-a2"].hbm_gib_per_die == 32


def test_values_of_the_chart_have_the_table_in_theirs(tmp_path: Path) -> None:
    values = {"operator": {"replicas": 1}, "accelerators": {"atlas-a2": {"resource": "huawei.com/Ascend910B3"}}}
    rows = read_files([write(tmp_path / "values.yaml", values)])
    assert rows["atlas-a2"].resource == "huawei.com/Ascend910B3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "must be a map of classes to their rows"),
        ("{", "cannot be read"),
        ("atlas-a2: {devicesPerNode: 0}", "accelerators.atlas-a2.devicesPerNode: 0: "),
        ("{kind: ConfigMap, data: {a.yaml: '['}}", "cannot be read"),
        ("{kind: ConfigMap, data: {a.yaml: '3'}}", "must be a map of classes"),
        ("{kind: ConfigMap, data: text}", "data of the ConfigMap must be a map"),
        ("[" * 3000, "nested too deeply"),
        ("{1: {devicesPerNode: 1}}", "accelerators.1: is not a valid class name"),
        ("#" * (SIZE_MAX + 1), "larger than 1 MiB"),
        ("lab: {pod: {cpu: 8gi}}", "must be a Kubernetes quantity"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AcceleratorsError, match=r"bad\.yaml") as caught:
        read_files([write(tmp_path / "bad.yaml", text)])
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AcceleratorsError, match=r"gone\.yaml: cannot be read"):
        read_files([tmp_path / "gone.yaml"])

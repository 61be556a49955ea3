"""Files of counts and maps, and how tokens are shared among replicas."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rljob.planner.experts.expert_maps import FileError, map_text, read_counts, read_map, routed_loads
from rljob.planner.experts.placement import device_loads, place

COUNTS = [[5, 1, 1, 1], [2, 2, 2, 2]]


def test_json_and_arrays_have_the_same_counts(tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text(json.dumps(COUNTS))
    np.save(tmp_path / "counts.npy", np.array([COUNTS], dtype=np.uint32))
    for name in ("counts.json", "counts.npy"):
        found = read_counts(tmp_path / name)
        assert found.shape == (1, 2, 4)
        assert found.tolist() == [COUNTS]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1, 2], [3]]", "not a list of equally long lists"),
        ("[1, 2]", r"shape \(2,\); counts must have the shape"),
        ("[[]]", "none of them 0"),
        ("[[1.5, 2]]", "not all are whole numbers"),
        ('{"a": 1}', r"shape \(\)"),
        ("[[true, false]]", "not all are whole numbers"),
        ("[[1, -1]]", "negative counts"),
        (f"[[{2**52}, {2**52}]]", r"add up to more than 2\^53"),
        ("[[1, 2]", "not JSON"),
    ],
)
def test_counts_that_are_none_name_the_file_and_the_fix(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "counts.json"
    path.write_text(text)
    with pytest.raises(FileError, match=message) as caught:
        read_counts(path)
    assert str(path) in str(caught.value)


def test_an_array_file_cannot_claim_more_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "counts.npy"
    np.save(path, np.ones((2, 2), dtype=np.int64))
    path.write_bytes(path.read_bytes().replace(b"(2, 2)", b"(9, 9)"))
    with pytest.raises(FileError, match=r"not an array that numpy\.save wrote"):
        read_counts(path)
    with pytest.raises(FileError, match="No such file"):
        read_counts(tmp_path / "absent.npy")
    with pytest.raises(FileError, match="No such file"):
        read_counts(tmp_path / "absent.json")


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "counts.npy"
    np.save(path, np.array([[{}]]), allow_pickle=True)
    with pytest.raises(FileError, match=r"not an array that numpy\.save wrote"):
        read_counts(path)


def test_too_many_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rljob.planner.experts.expert_maps.ELEMENTS_MAX", 3)
    np.save(tmp_path / "counts.npy", np.ones((2, 2), dtype=np.int64))
    with pytest.raises(FileError, match="4 numbers, more than 3; add up some windows"):
        read_counts(tmp_path / "counts.npy")


def test_a_map_is_read_as_it_was_written(tmp_path: Path) -> None:
    placement = place(np.array(COUNTS), 2, 6)
    (tmp_path / "map.json").write_text(map_text(placement))
    assert (read_map(tmp_path / "map.json") == placement).all()
    document = json.loads((tmp_path / "map.json").read_text())
    assert document["moe_layer_count"] == 2
    assert [device["device_id"] for device in document["layer_list"][1]["device_list"]] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"layer_list": [{"device_list": [{"device_expert": [0]}, {"device_expert": [0, 1]}]}]}',
        '{"layer_list": [{"device_list": [{"device_expert": 0}]}]}',
        '{"layer_list": []}',
        '{"layer_list": [{"device_list": [{"device_expert": ["0"]}]}]}',
    ],
)
def test_other_documents_are_no_maps(tmp_path: Path, text: str) -> None:
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(FileError, match="not an expert map"):
        read_map(tmp_path / "map.json")


def test_tokens_are_shared_by_the_rank_that_sends_them() -> None:
    # Expert 0 has three replicas on four devices, so the first of them serves the ranks 0 and 3.
    placement = np.array([[[0, 1], [0, 2], [0, 3], [4, 5]]])
    loads = np.array([[12, 1, 1, 1, 1, 1]])
    assert routed_loads(loads, placement)[0].tolist() == [7.0, 4.0, 4.0, 2.0]
    assert device_loads(loads, placement)[0].tolist() == [5.0, 5.0, 5.0, 2.0]


def test_shares_agree_with_a_simulation_of_every_rank() -> None:
    generator = np.random.default_rng(0)
    loads = generator.integers(0, 1000, (3, 12))
    placement = place(loads, 5, 20)
    expected = np.zeros((3, 5))
    for layer in range(3):
        for expert in range(12):
            holders = [device for device in range(5) if expert in placement[layer, device]]
            for rank in range(5):
                expected[layer, holders[rank % len(holders)]] += loads[layer, expert] / 5
    assert routed_loads(loads, placement) == pytest.approx(expected)


def test_an_archive_of_arrays_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "counts.npy").open("wb") as file:
        np.savez(file, counts=np.ones((1, 4), dtype=np.int64))
    with pytest.raises(FileError, match="an archive of arrays; write one array"):
        read_counts(tmp_path / "counts.npy")

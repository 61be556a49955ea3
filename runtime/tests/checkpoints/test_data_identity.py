"""The training data of a step: what counts as the same, and what a resume with other data does."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rljob_runtime.checkpoints import data_identity
from rljob_runtime.checkpoints.data_identity import BLOCK_BYTES, BLOCKS, DATA_FILE, DataIdentity
from rljob_runtime.checkpoints.prompt_ledger import LEDGER_FILE
from rljob_runtime.contract import CONTRACT_VERSION, ExitCode, JobConfig, Platform, ResumeData, TrainerMode
from rljob_runtime.outcomes import FencedError, RefusedError

if TYPE_CHECKING:
    from omegaconf import DictConfig

JOB = JobConfig(CONTRACT_VERSION, "team-a", "sums", "uid-1", "sums-uid01-1", 1, Platform.CPU, 1, 2, 2, 40, {})
LARGE = BLOCKS * BLOCK_BYTES


def identity(files: list[Path], prompts: int = 100, own_class: str | None = None) -> DataIdentity:
    """Return the identity of data as verl's configuration names it."""
    data = {"train_files": [str(file) for file in files], "custom_cls": {"path": own_class}}
    config = SimpleNamespace(data=type("Node", (dict,), {"train_files": data["train_files"]})(data))
    return data_identity.of(cast("DictConfig", config), prompts)


def train(folder: Path, text: str = "a\nb\n", name: str = "train.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def saved(folder: Path, data: DataIdentity) -> Path:
    """Save a step and return its folder."""
    (step := folder / "global_step_5").mkdir(parents=True)
    data_identity.note(step, data, lambda: None)
    return step


def begins(step: Path, now: DataIdentity, **job: Any) -> str | None:  # noqa: ANN401 - fields of job.json
    return data_identity.begins_epoch(step, now, dataclasses.replace(JOB, **job))


def refusal(step: Path, now: DataIdentity, **job: Any) -> str:  # noqa: ANN401 - as above
    with pytest.raises(RefusedError) as caught:
        begins(step, now, **job)
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "CheckpointData")
    return str(caught.value)


def test_the_same_data_at_another_path_continues(tmp_path: Path) -> None:
    file = train(tmp_path / "here")
    step = saved(tmp_path, identity([file]))
    copy = Path(shutil.copy(file, tmp_path / "copy.jsonl"))
    os.utime(copy, (1, 1))
    assert begins(step, identity([file])) is None
    assert begins(step, identity([copy])) is None
    assert [entry.name for entry in step.iterdir()] == [DATA_FILE]


def test_fewer_prompts_are_refused_with_both_numbers_and_the_file(tmp_path: Path) -> None:
    file = train(tmp_path)
    step = saved(tmp_path, identity([file], 7473))
    said = refusal(step, identity([train(tmp_path, "a\n")], 512))
    assert "spec.data.train had 7473 prompts then, and has 512 now; " in said
    assert f"{file} of 2 bytes is not the file of 4 bytes that it was" in said
    assert "set spec.checkpoint.data to NewEpoch" in said


def test_other_rows_of_the_same_number_and_size_are_refused(tmp_path: Path) -> None:
    step = saved(tmp_path, identity([train(tmp_path)]))
    moved = train(tmp_path, "a\nc\n", "other.jsonl")
    assert f"{moved} of 4 bytes is not the file {tmp_path}/train.jsonl of 4 bytes" in refusal(step, identity([moved]))


def test_another_filter_of_the_same_files_is_refused(tmp_path: Path) -> None:
    step = saved(tmp_path, identity([train(tmp_path)], 100))
    assert "has 90 now of the same files, by other limits" in refusal(step, identity([tmp_path / "train.jsonl"], 90))


def test_more_files_or_another_order_are_refused(tmp_path: Path) -> None:
    one, two = train(tmp_path, name="1.json"), train(tmp_path, "c\n", "2.json")
    step = saved(tmp_path, identity([one, two]))
    assert f"2 files ({one}, {two}) then, 1 files ({one}) now" in refusal(step, identity([one]))
    assert f"{two} of 2 bytes is not the file {one}" in refusal(step, identity([two, one]))


def test_a_message_names_few_files(tmp_path: Path) -> None:
    files = [train(tmp_path, f"{number}\n", f"{number}.json") for number in range(9)]
    step = saved(tmp_path, identity(files))
    said = refusal(step, identity(files[::-1]))
    assert "; 5 more files are others;" in said
    assert " and 6 more) then, " in refusal(step, identity(files[1:]))


def test_new_epoch_begins_the_other_data_and_continues_in_it_from_then_on(tmp_path: Path) -> None:
    step = saved(tmp_path, identity([train(tmp_path)], 7473))
    other = identity([train(tmp_path, "c\n")], 512)
    reason = begins(step, other, resume_data=ResumeData.NEW_EPOCH)
    assert reason is not None
    assert "had 7473 prompts then, and has 512 now" in reason
    later = saved(tmp_path / "later", other)
    assert begins(later, other, resume_data=ResumeData.NEW_EPOCH) is None


def test_prompts_in_flight_are_of_the_old_data_so_asynchronous_modes_refuse_a_new_epoch(tmp_path: Path) -> None:
    step = saved(tmp_path, identity([train(tmp_path)]))
    (step / LEDGER_FILE).write_text("{}")
    other = identity([train(tmp_path, "c\n")])
    said = refusal(step, other, mode=TrainerMode.COLOCATE_ASYNC, resume_data=ResumeData.NEW_EPOCH)
    assert "trainer.mode ColocateAsync has prompts of the old data in flight" in said
    assert "NewEpoch" not in said


@pytest.mark.parametrize(("ledger", "mode"), [("{}", TrainerMode.SYNC), (None, TrainerMode.SEPARATE_ASYNC)])
def test_a_step_of_the_other_kind_of_mode_has_no_place_that_counts(
    tmp_path: Path, ledger: str | None, mode: TrainerMode
) -> None:
    step = saved(tmp_path, identity([train(tmp_path)]))
    if ledger is not None:
        (step / LEDGER_FILE).write_text(ledger)
    assert begins(step, identity([train(tmp_path, "c\n")]), mode=mode) is None


@pytest.mark.parametrize("written", [None, b"{", b"[]", b'{"files": [1], "prompts": 1}', b'{"files": []}'])
def test_a_step_without_a_record_is_resumed(tmp_path: Path, written: bytes | None) -> None:
    if written is not None:
        (tmp_path / DATA_FILE).write_bytes(written)
    assert begins(tmp_path, identity([train(tmp_path)])) is None


def test_a_record_that_cannot_be_read_now_is_an_error_of_the_volume(tmp_path: Path) -> None:
    (tmp_path / DATA_FILE).mkdir()
    with pytest.raises(IsADirectoryError):
        begins(tmp_path, identity([]))


def test_what_cannot_be_read_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    exotic = [tmp_path / "folder", tmp_path / "absent", tmp_path / "pipe", Path("null\0byte")]
    data = identity(exotic)
    assert [file.sha256 for file in data.files] == [None] * len(exotic)
    step = saved(tmp_path, data)
    assert begins(step, identity([train(tmp_path)] * len(exotic))) is None
    assert begins(step, identity([train(tmp_path)])) is None
    assert "has 99 now" in refusal(step, identity(exotic, 99))


def test_data_that_hangs_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(seconds: float, do: object) -> object:
        raise TimeoutError(seconds, do)

    monkeypatch.setattr(data_identity, "within", hang)
    assert identity([train(tmp_path)]).files[0].sha256 is None


def test_a_class_of_the_users_own_may_have_any_number_of_prompts(tmp_path: Path) -> None:
    file = train(tmp_path)
    step = saved(tmp_path, identity([file], 100, "/code/data.py"))
    assert begins(step, identity([file], 70, "/code/data.py")) is None
    assert "is not the file" in refusal(step, identity([train(tmp_path, "c\n")], 70, "/code/data.py"))


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, LARGE, LARGE + 1, 5 * LARGE])
def test_a_digest_reads_a_bounded_part_from_the_first_byte_to_the_last(tmp_path: Path, size: int) -> None:
    file = tmp_path / "train.parquet"
    with file.open("wb") as opened:
        opened.truncate(size)
    found = {data_identity.digest(str(file))}
    for place in sorted({0, size - 1} if size else ()):
        with file.open("r+b") as opened:
            opened.seek(place)
            opened.write(b"x")
        found.add(data_identity.digest(str(file)))
    assert len(found) == 1 + min(size, 2)
    starts = data_identity._blocks(size)
    assert len(starts) <= BLOCKS
    assert not starts or max(starts) + BLOCK_BYTES >= size


def test_a_volume_that_takes_no_record_does_not_end_the_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path), text)

    data = identity([train(tmp_path)])
    monkeypatch.setattr(Path, "write_text", full)
    assert not list(saved(tmp_path, data).iterdir())
    assert "cannot record the training data of " in capsys.readouterr().err


def test_a_process_that_lost_the_folder_records_nothing(tmp_path: Path) -> None:
    def lost() -> None:
        raise FencedError("lost")

    with pytest.raises(FencedError):
        data_identity.note(tmp_path, identity([train(tmp_path / "data")]), lost)
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_a_run_that_only_evaluates_records_nothing(tmp_path: Path) -> None:
    data_identity.note(tmp_path, None, lambda: None)
    assert not list(tmp_path.iterdir())


def test_the_record_can_be_read_by_people(tmp_path: Path) -> None:
    step = saved(tmp_path, identity([file := train(tmp_path)], 2))
    written = json.loads((step / DATA_FILE).read_text())
    assert written["prompts"] == 2
    assert written["files"][0].keys() == {"path", "bytes", "sha256"}
    assert written["files"][0]["path"] == str(file)

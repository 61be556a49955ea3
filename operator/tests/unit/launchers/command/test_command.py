"""A job whose trainer is a command: its job.json, its snapshot, and what it does not get from verl."""

from __future__ import annotations

import json

import pytest
from builders import IDENTITY, Json, config, merged, small_spec, snapshot, typed, validate
from corpus.command import command, progress, saves

from rljob.api.launcher import CommandMetrics
from rljob.cli.errors import UsageError
from rljob.cli.explain import explain, read_path
from rljob.cli.local.fields import without_effect
from rljob.cli.plan.memory import plan_memory
from rljob.core.spec.merge import layer
from rljob.core.spec.mutability import change_violations
from rljob.core.spec.recipes import recipe_id
from rljob.core.validation.launcher_fields import readable, violations
from rljob.launchers import LAUNCHER
from rljob.launchers.command import checks
from rljob.launchers.command.command_launcher import CommandLauncher
from rljob.render.accelerators import BUILT_IN
from rljob.render.configmap import JOB_KEY, SPEC_KEY, read_snapshot, spec_document
from rljob.render.env import operator_env
from rljob_runtime.contract import JobConfig
from rljob_runtime.contract.command import CommandMetric

RECIPE: Json = {
    "kind": "RLRecipe",
    "metadata": {"namespace": "team", "name": "base", "uid": "u", "generation": 1},
    "spec": {"template": {"model": {"path": "/m"}}},
}
BY_STEP = {"checkpoint": {"layout": "Pattern", "pattern": "step-{step}"}}
ATLAS = {"accelerator": {"class": "atlas-a2"}, "workerGroups": [{"name": "trainer", "devicesPerNode": 8}]}


def config_of(change: Json) -> JobConfig:
    spec = typed(small_spec(change))
    return LAUNCHER(spec).job_config(IDENTITY, spec, 1)


def warnings(change: Json) -> list[str]:
    checked = validate("sums", small_spec(change))
    assert checked.violations == ()
    return [warning.field for warning in checked.warnings]


def test_job_json_describes_the_command_and_has_no_overrides() -> None:
    made = config_of(
        saves(
            {"workingDir": "/code", "progress": {"source": "JSONLines", "path": "/s", "metrics": {"reward": "r"}}},
            checkpoint={"keep": 2},
            stop={"graceSeconds": 30},
        )
    )
    assert (made.overrides, made.required_paths, made.total_steps) == ({}, (), 40)
    assert made.command is not None
    assert made.command.args == ("python", "/code/train.py", "--to={checkpoints}")
    assert (made.command.working_dir, made.command.stop_seconds) == ("/code", 30.0)
    assert made.command.progress is not None
    assert made.command.progress.metrics == {CommandMetric.REWARD: "r"}
    assert made.command.checkpoint is not None
    assert (made.command.checkpoint.keep, made.command.checkpoint.resume_args) == (2, ("--from={checkpoint}",))
    assert JobConfig.from_json(made.to_json()) == made


def test_a_command_that_states_nothing_else_has_no_steps_progress_or_checkpoint() -> None:
    made = config_of(command(trainer=None))
    assert made.command is not None
    assert (made.total_steps, made.command.progress, made.command.checkpoint) == (0, None, None)


@pytest.mark.parametrize(("key", "path"), [("", 'spec.trainer[""]'), ("a b", "spec.trainer[a b]")])
def test_a_key_that_is_no_word_is_refused_at_a_path_that_explain_reads(key: str, path: str) -> None:
    (found,) = validate("sums", small_spec(command(trainer={key: 1}))).violations
    assert found.field == path
    assert read_path(found.field) == ("trainer", key)


def test_job_json_of_verl_names_no_command() -> None:
    assert config_of({}).command is None


def test_the_fields_of_metrics_are_the_figures_of_job_json() -> None:
    assert {str(info.alias) for info in CommandMetrics.model_fields.values()} == {each.value for each in CommandMetric}


def test_a_spec_that_was_not_checked_has_no_job_json() -> None:
    with pytest.raises(AssertionError, match=r"launcher\.command"):
        CommandLauncher().job_config(IDENTITY, typed(), 1)


@pytest.mark.parametrize("change", [command(), command(trainer=None), saves(), command(optimizations={})])
def test_the_snapshot_contains_only_what_the_job_has(change: Json) -> None:
    spec = small_spec(change)
    document = json.loads(snapshot(spec)["data"][SPEC_KEY])
    assert not {"model", "data", "reward", "algorithm", "rollout", "verl"} & document.keys()
    assert set(document.get("trainer", {})) <= {"steps"}
    assert set(document["optimizations"]) == {"coreBinding"}
    read = read_snapshot(snapshot(spec), BUILT_IN)
    assert read is not None
    assert spec_document(read.spec) == document
    assert readable(document) == document


def test_a_snapshot_of_verl_is_as_before_there_were_commands() -> None:
    assert "launcher" not in spec_document(typed())


def test_a_field_that_a_recipe_sets_is_refused_with_the_recipe() -> None:
    spec = small_spec(command()) | {"recipeRef": {"kind": "RLRecipe", "name": "base"}}
    known = {recipe_id(RECIPE): RECIPE}
    (found,) = validate("sums", spec, known).violations
    assert found.field == "spec.model"
    assert "RLRecipe base sets it, so name it in spec.unset" in found.message
    assert validate("sums", spec | {"unset": ["model"]}, known).violations == ()


@pytest.mark.parametrize("launcher", ["Command", 7, {"type": "Verl"}, {}])
def test_only_a_manifest_that_names_a_command_loses_fields(launcher: object) -> None:
    spec = small_spec() | {"launcher": launcher}
    assert readable(spec) == spec
    assert list(violations(layer("job", spec).tree)) == []


def test_sections_of_wrong_types_are_left_to_the_types() -> None:
    spec = small_spec(command()) | {"trainer": 3, "optimizations": []}
    assert readable(spec)["trainer"] == 3
    checked = validate("sums", spec)
    assert {violation.field for violation in checked.violations} == {"spec.trainer", "spec.optimizations"}


def test_an_invalid_launcher_is_the_only_violation() -> None:
    checked = validate("sums", small_spec(command({"args": []})))
    assert [violation.field for violation in checked.violations] == ["spec.launcher.command.args"]


def test_a_command_sets_variables_of_its_framework_by_itself() -> None:
    spec = typed(small_spec(merged(command(), ATLAS)))
    names = {entry["name"] for entry in operator_env(spec, spec.worker_groups[0].template)}
    assert "HCCL_CONNECT_TIMEOUT" in names
    assert not {"TASK_QUEUE_ENABLE", "CUDA_DEVICE_MAX_CONNECTIONS"} & names


def test_the_level_of_its_queue_is_its_own_choice() -> None:
    level = {"template": {"env": [{"name": "TASK_QUEUE_ENABLE", "value": "2"}]}}
    spec = merged(ATLAS, {"workerGroups": [{"name": "trainer", "devicesPerNode": 8, **level}]})
    assert validate("sums", small_spec(merged(command(), spec))).violations == ()


def test_only_the_binding_of_cores_is_decided_for_it() -> None:
    spec = typed(small_spec(command()))
    assert [question.name for question in LAUNCHER(spec).questions] == ["optimizations.coreBinding"]
    assert LAUNCHER(spec).modules == ("rljob_runtime", "ray")
    with pytest.raises(UsageError, match=r"launcher\.type is Command"):
        plan_memory("sums", spec, None, LAUNCHER)


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (command(), []),
        (command({"args": ["t", "$SAVE_DIR"]}), ["spec.launcher.command.args[1]"]),
        (command({"args": ["cd", "/code", "&&", "t"]}), ["spec.launcher.command.args[2]"]),
        (command({"args": ["t", "price=$$5", r"\$HOME", "a$", "+k=${a.b}"]}), []),
        (command({"args": ["bash", "-c", "cd /code && t"]}), []),
        (command({"args": ["/usr/bin/ray", "job", "submit", "--", "t"]}), ["spec.launcher.command.args"]),
        (command({"args": ["a", "{devics}", "{b}"]}), ["spec.launcher.command.args[1]"]),
        (saves({"checkpoint": {"fence": "None"}}), []),
        (saves({"args": ["t", "/data/checkpoints"], "checkpoint": {"fence": "None"}}), []),
        (saves({"args": ["t"], "checkpoint": {"fence": "None"}}), ["spec.launcher.command.args"]),
        (saves(BY_STEP), ["spec.launcher.command.checkpoint.complete"]),
        (saves(merged(BY_STEP, {"checkpoint": {"complete": "step-{step}/done"}})), []),
        (saves(merged(BY_STEP, {"checkpoint": {"pattern": "step-{step}/state.pt"}})), []),
        (command(deadlines={"progressSeconds": 60}), ["spec.deadlines.progressSeconds"]),
        (merged(progress(source="VerlConsole"), {"deadlines": {"progressSeconds": 60}}), []),
    ],
)
def test_doubtful_settings_are_warnings(change: Json, fields: list[str]) -> None:
    assert warnings(change | {"deadlines": {"activeSeconds": 600, **change.get("deadlines", {})}}) == fields


@pytest.mark.parametrize(
    ("change", "field", "near"),
    [
        (command(trainer={"stepz": 5}), "spec.trainer.stepz", "steps"),
        (saves(checkpoint={"keeep": 3}), "spec.checkpoint.keeep", "keep"),
    ],
)
def test_a_misspelt_field_is_no_field_of_another_launcher(change: Json, field: str, near: str) -> None:
    checked = validate("sums", small_spec(change))
    assert [(one.field, one.message) for one in checked.violations] == [
        (field, f"is not a field; did you mean {near}?")
    ]


def test_a_command_that_nothing_ends_is_a_warning() -> None:
    assert warnings(command()) == ["spec.launcher.command.progress"]
    assert warnings(progress(source="VerlConsole")) == []


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        (command(), command(trainer={"steps": 41}), []),
        (command(), command(trainer={"steps": 39}), ["spec.trainer.steps"]),
        (command(trainer=None), command(), []),
        (command(), command(trainer=None), []),
        ({}, command(), ["spec.launcher.type"]),
    ],
)
def test_what_may_change_while_it_runs(before: Json, after: Json, fields: list[str]) -> None:
    found = change_violations(typed(small_spec(before)), typed(small_spec(after)))
    assert [violation.field for violation in found] == fields


def test_explain_shows_no_field_of_verl_for_a_command() -> None:
    checked = validate("sums", small_spec(command()))
    assert checked.spec is not None
    rows = {row.field: row.value for row in explain(checked, checked.spec, [])}
    assert rows["launcher.type"] == "Command"
    assert not [field for field in rows if field.startswith(("model", "data", "reward", "rollout", "verl"))]


def test_a_local_run_uses_every_field_of_the_command() -> None:
    assert without_effect({"launcher": small_spec(saves())["launcher"]}) == {}


def test_a_frozen_command_is_what_the_job_states() -> None:
    spec = small_spec(saves())
    assert JobConfig.from_json(config(spec)["data"][JOB_KEY]) == config_of(saves())


def test_few_of_many_unknown_names_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def ask(name: str, *_: object, **__: object) -> list[str]:
        compared.append(name)
        return ["steps"]

    monkeypatch.setattr("difflib.get_close_matches", ask)
    letters = "abcdefghij"
    words = [f"{{step{one}{other}}}" for one in letters for other in letters]
    found = list(warnings(command({"args": ["python", *words], "progress": {"source": "VerlConsole"}})))
    assert len(compared) == checks.COMPARED_MAX
    assert len([field for field in found if ".args[" in field]) == checks.COMPARED_MAX

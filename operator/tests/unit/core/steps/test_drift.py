"""What is reported about a running job without touching it: edits, changed recipes, another renderer."""

from __future__ import annotations

import pytest
from builders import (
    Json,
    cluster,
    decide,
    group,
    job,
    merged,
    pod,
    reasons,
    running,
    saving,
    seen,
    small_spec,
    snapshot,
    status_after,
    status_recorded,
    status_training,
    validate,
    wrote,
)

from rljob.api.status import RLJobStatus, State
from rljob.api.v1alpha1 import RecipeKind
from rljob.core.observed import Observed, RecipeId
from rljob.core.plan import CreateObject, Plan
from rljob.render import configmap, labels
from rljob.render.accelerator_table import OPERATOR_IMAGE
from rljob.render.accelerators import BUILT_IN

WRONG = small_spec({"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 7}})
BASE = RecipeId(RecipeKind.CLUSTER_RL_RECIPE, "base")
SHORT = {"deadlines": {"progressSeconds": 50}, "trainer": {"learningRate": "1e-5"}}


def recipe(template: Json, generation: int = 1, uid: str = "recipe-uid") -> Json:
    metadata = {"name": "base", "uid": uid, "generation": generation}
    return {"kind": "ClusterRLRecipe", "metadata": metadata, "spec": {"template": template}}


ON_BASE = small_spec({"recipeRef": {"name": "base"}})
RECIPES = {BASE: recipe(SHORT)}


def taken() -> Json:
    """Return the snapshot of a job on the recipe, as the operator creates it."""
    begun = decide(Observed(job(ON_BASE), snapshot=None, recipes=RECIPES))
    _, effect = decide(Observed(job(ON_BASE, begun.status), snapshot=None, recipes=RECIPES, config=None)).effects
    assert isinstance(effect, CreateObject)
    return dict(effect.manifest)


def on_recipe(recipes: dict[RecipeId, Json], spec: Json | None = None, **facts: object) -> Observed:
    """Return the observation of a running job that used the recipe, with the current recipes."""
    begun = status_after(decide(Observed(job(ON_BASE), snapshot=None, recipes=RECIPES)))
    status = status_training() | {"resolved": begun["resolved"]}
    return running(job=job(spec or ON_BASE, status), snapshot=taken(), recipes=recipes, **facts)


def condition_message(plan: Plan, kind: str) -> str:
    return next(entry.message for entry in wrote(plan).conditions if entry.type == kind)


def status_of(plan: Plan) -> RLJobStatus:
    return wrote(plan)


def edited(change: Json) -> Plan:
    waits = (pod(ready=False),)
    return decide(seen(job(small_spec(change), status_recorded()), clusters=(cluster(),), pods=waits))


def test_an_edit_lists_its_fields_and_is_taken_back() -> None:
    plan = edited({"trainer": {"learningRate": "1e-5", "steps": 50}})
    assert reasons(plan)["PendingChanges"] == ("True", "SpecChanged")
    message = condition_message(plan, "PendingChanges")
    assert message.startswith(
        "trainer.steps: 40 -> 50; trainer.learningRate: 1e-6 -> 1e-5; the next cluster generation"
    )
    assert "learningRate" not in (wrote(plan).message or "")
    back = decide(seen(job(status=plan.status), clusters=(cluster(),), pods=()))
    assert reasons(back)["PendingChanges"] == ("False", "UpToDate")


def test_fields_that_come_and_go_are_listed_by_their_key() -> None:
    spec = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}}))
    old = seen(job(status=status_recorded()), snapshot=snapshot(spec), clusters=(cluster(),), pods=())
    assert "checkpoint.path: /data/saves -> unset" in condition_message(decide(old), "PendingChanges")
    env = group({"template": {"env": [{"name": "A", "value": "1"}]}})
    assert 'template.env[A]: unset -> {"name":"A","value":"1"}; the next' in condition_message(
        edited(env), "PendingChanges"
    )


def test_a_long_list_of_changes_is_cut() -> None:
    change = {"verl": {"overrides": {f"+ray_kwargs.ray_init.key{number}": "v" * 100 for number in range(13)}}}
    message = condition_message(edited(change), "PendingChanges")
    assert "verl.overrides[+ray_kwargs.ray_init.key9]: unset -> " + "v" * 59 + "…; and 3 more; " in message


def test_an_edit_of_what_takes_effect_at_once_is_no_pending_change() -> None:
    sections = {"deadlines": {"activeSeconds": 500}, "cleanup": {"clusterAfterSeconds": 7}, "stop": {"graceSeconds": 9}}
    plan = edited(sections | {"restart": {"backoffSeconds": 60}})
    assert plan.empty


def test_an_invalid_edit_is_reported_with_its_violations_and_changes_nothing_else() -> None:
    plan = decide(seen(job(WRONG, status_recorded()), clusters=(cluster(),), pods=()))
    assert reasons(plan)["PendingChanges"] == ("True", "InvalidSpec")
    assert "do not divide" in condition_message(plan, "PendingChanges")
    assert wrote(plan).state is State.STARTING


def test_steps_may_not_shrink_by_way_of_a_recipe_either() -> None:
    plan = edited({"trainer": {"steps": 7}})
    assert "spec.trainer.steps: 7 is less than 40" in condition_message(plan, "PendingChanges")


def test_code_that_was_copied_is_not_copied_again() -> None:
    def code(name: str) -> Json:
        return small_spec({"code": {"type": "ConfigMap", "configMap": {"name": name}}})

    world = seen(job(code("new"), status_recorded()), snapshot=snapshot(code("old")), clusters=(cluster(),), pods=())
    assert "spec.code.configMap: new, but old was copied" in condition_message(decide(world), "PendingChanges")


def test_without_a_snapshot_an_edit_is_reported_without_its_fields() -> None:
    subject = job(small_spec({"trainer": {"learningRate": "1"}}), status_recorded())
    plan = decide(Observed(subject, snapshot=None, clusters=(cluster(),), pods=()))
    assert reasons(plan)["PendingChanges"] == ("True", "SpecChanged")


def test_the_snapshot_holds_the_recipe_as_it_was_read() -> None:
    made = taken()
    assert configmap.read_snapshot(made, BUILT_IN).recipes == validate("sums", ON_BASE, RECIPES).recipes
    assert configmap.read_snapshot(made, BUILT_IN).spec.trainer.learning_rate == "1e-5"
    (origin,) = status_of(decide(Observed(job(ON_BASE), snapshot=None, recipes=RECIPES))).resolved.recipes  # type: ignore[union-attr]
    assert (origin.kind, origin.name, origin.uid, origin.generation) == ("ClusterRLRecipe", "base", "recipe-uid", 1)
    assert origin.hash in made["data"]["recipes.json"]


def test_an_unchanged_recipe_is_no_news() -> None:
    assert decide(on_recipe(dict(RECIPES))).status is None


@pytest.mark.parametrize(
    ("now", "message"),
    [
        ({BASE: recipe({"trainer": {"learningRate": "1"}}, 3)}, "changed from generation 1 to 3"),
        ({}, "was deleted"),
        ({BASE: recipe(SHORT, uid="another")}, "was deleted and created again"),
    ],
)
def test_a_changed_recipe_is_reported_once_and_changes_nothing_else(now: dict[RecipeId, Json], message: str) -> None:
    plan = decide(on_recipe(now))
    assert reasons(plan)["RecipeDrift"] == ("True", "RecipeChanged")
    assert "PendingChanges" not in reasons(plan)
    assert f"ClusterRLRecipe base {message}; the job keeps" in condition_message(plan, "RecipeDrift")
    assert "annotation rljob.dev/refresh" in condition_message(plan, "RecipeDrift")
    again = on_recipe(now)
    again = running(job=job(ON_BASE, plan.status), snapshot=again.snapshot, recipes=now)
    assert decide(again).empty
    back = running(job=job(ON_BASE, plan.status), snapshot=again.snapshot, recipes=RECIPES)
    assert reasons(decide(back))["RecipeDrift"] == ("False", "UpToDate")


def test_of_a_recipe_that_cannot_be_read_nothing_is_said() -> None:
    assert decide(on_recipe({}, unreadable={RecipeKind.CLUSTER_RL_RECIPE: "no CRD"})).status is None


def test_an_edit_is_judged_over_the_recipe_as_it_was_taken() -> None:
    now = {BASE: recipe({"trainer": {"learningRate": "1"}, "deadlines": {"progressSeconds": 1}}, 2)}
    plan = decide(on_recipe(now, merged(ON_BASE, {"trainer": {"steps": 60}})))
    assert condition_message(plan, "PendingChanges").startswith("trainer.steps: 40 -> 60; the next")


def test_a_deadline_of_the_recipe_is_that_of_the_recipe_as_it_was_taken() -> None:
    now = {BASE: recipe({"deadlines": {"progressSeconds": 1}}, 2)}
    drift = decide(on_recipe(now))
    world = running(job=job(ON_BASE, drift.status), snapshot=taken(), recipes=now)
    assert decide(world, 49).empty
    asked = job(ON_BASE, drift.status, annotations={labels.REFRESH: "now"})
    told_once = decide(running(job=asked, snapshot=taken(), recipes=now))
    asked = job(ON_BASE, told_once.status, annotations={labels.REFRESH: "now"})
    assert decide(running(job=asked, snapshot=taken(), recipes=now), 49).empty


def test_a_request_to_refresh_shows_what_it_would_bring() -> None:
    now = {BASE: recipe({"trainer": {"learningRate": "1"}}, 2)}
    world = on_recipe(now)
    asked = job(ON_BASE, world.job["status"], annotations={labels.REFRESH: "once more"})
    plan = decide(running(job=asked, snapshot=taken(), recipes=now))
    assert condition_message(plan, "PendingChanges").startswith("trainer.learningRate: 1e-5 -> 1; ")


def test_another_recipe_is_read_when_the_job_names_it() -> None:
    other = RecipeId(RecipeKind.CLUSTER_RL_RECIPE, "other")
    found = recipe({"trainer": {"learningRate": "3"}})
    found["metadata"]["name"] = "other"
    plan = decide(on_recipe({**RECIPES, other: found}, merged(ON_BASE, {"recipeRef": {"name": "other"}})))
    assert "recipeRef.name: base -> other; trainer.learningRate: 1e-5 -> 3" in condition_message(plan, "PendingChanges")


def test_a_cluster_of_another_renderer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    old = (cluster(ready=1),)
    world = running(job=job(status=status_training()), clusters=old)
    monkeypatch.setattr(labels, "RENDERER_VERSION", "9")
    plan = decide(world)
    assert reasons(plan)["RendererDrift"] == ("True", "RendererChanged")
    assert decide(running(job=job(status=plan.status), clusters=old)).empty
    monkeypatch.undo()
    assert reasons(decide(running(job=job(status=plan.status))))["RendererDrift"] == ("False", "UpToDate")


def test_a_cluster_without_the_mark_of_a_renderer_is_no_news() -> None:
    assert decide(running(job=job(status=status_training()), clusters=(cluster(ready=1, annotations=None),))).empty


def test_a_cluster_with_the_runtime_of_an_earlier_operator_is_reported() -> None:
    old = (cluster(ready=1, annotations={labels.RUNTIME_IMAGE: "rljob.local/operator:earlier"}),)
    plan = decide(running(job=job(status=status_training()), clusters=old))
    assert reasons(plan)["RendererDrift"] == ("True", "RuntimeChanged")
    assert "has the runtime of rljob.local/operator:earlier, this operator injects that of" in condition_message(
        plan, "RendererDrift"
    )
    same = (cluster(ready=1, annotations={labels.RUNTIME_IMAGE: OPERATOR_IMAGE}),)
    assert decide(running(job=job(status=status_training()), clusters=same)).empty

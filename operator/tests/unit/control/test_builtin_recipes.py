"""Built-in recipes: exactly those of the release, without touching other recipes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from doubles.fake import fail_calls
from machine import Machine

from rljob.cluster.errors import Conflict, Forbidden, Unavailable
from rljob.cluster.kinds import CLUSTER_RL_RECIPE
from rljob.control import builtin_recipes
from rljob.control.builtin_recipes import BuiltIns, owner_label
from rljob.render.labels import BUILT_IN


@pytest.fixture
def release(machine: Machine, tmp_path: Path) -> BuiltIns:
    ship(tmp_path, "a", 1)
    ship(tmp_path, "b", 1)
    return BuiltIns(machine.cluster, tmp_path, "rljob-system.rljob")


def ship(folder: Path, name: str, steps: int) -> None:
    head = f"apiVersion: rljob.dev/v1alpha1\nkind: ClusterRLRecipe\nmetadata: {{name: {name}, labels: {{x: y}}}}\n"
    (folder / f"{name}.yaml").write_text(head + f"spec: {{template: {{trainer: {{steps: {steps}}}}}}}\n")


def there(machine: Machine) -> dict[str, int]:
    found = machine.cluster.objects(CLUSTER_RL_RECIPE)
    return {item["metadata"]["name"]: item["spec"]["template"]["trainer"]["steps"] for item in found}


async def test_a_release_brings_its_recipes_with_their_label(machine: Machine, release: BuiltIns) -> None:
    assert await release.once()
    assert there(machine) == {"a": 1, "b": 1}
    first = machine.cluster.objects(CLUSTER_RL_RECIPE)[0]
    assert first["metadata"]["labels"] == {"x": "y", BUILT_IN: "rljob-system.rljob"}


async def test_the_same_release_again_changes_nothing(machine: Machine, release: BuiltIns) -> None:
    await release.once()
    before = machine.cluster.objects(CLUSTER_RL_RECIPE)
    await release.once()
    assert machine.cluster.objects(CLUSTER_RL_RECIPE) == before


async def test_an_upgrade_changes_adds_and_removes(machine: Machine, release: BuiltIns) -> None:
    await release.once()
    ship(release.folder, "a", 2)
    ship(release.folder, "c", 3)
    (release.folder / "b.yaml").unlink()
    assert await release.once()
    assert there(machine) == {"a": 2, "c": 3}


@pytest.mark.parametrize("labels", [{}, {BUILT_IN: "another.installation"}])
async def test_recipes_of_others_are_left_alone(machine: Machine, release: BuiltIns, labels: dict[str, str]) -> None:
    for name in ("a", "z"):
        metadata = {"name": name, "labels": labels}
        spec = {"template": {"trainer": {"steps": 9}}}
        machine.cluster.put(
            {"apiVersion": "rljob.dev/v1alpha1", "kind": "ClusterRLRecipe", "metadata": metadata, "spec": spec}
        )
    assert await release.once()
    assert there(machine) == {"a": 9, "b": 1, "z": 9}


async def test_a_release_without_recipes_and_files_of_something_else_are_no_failure(
    machine: Machine, release: BuiltIns
) -> None:
    for path in release.folder.iterdir():
        path.write_text("kind: ConfigMap")
    assert await release.once()
    assert there(machine) == {}


async def test_a_recipe_that_vanished_meanwhile_is_gone(machine: Machine, release: BuiltIns) -> None:
    await release.once()
    for path in release.folder.iterdir():
        path.unlink()
    machine.cluster.faults.append(fail_calls("delete", CLUSTER_RL_RECIPE, Conflict("created again"), times=1))
    assert await release.once()
    assert there(machine) == {"a": 1}


async def test_what_may_pass_is_tried_again(
    machine: Machine, release: BuiltIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin_recipes, "RETRY_SECONDS", 0)
    machine.cluster.faults.append(fail_calls("patch", CLUSTER_RL_RECIPE, Unavailable("down"), times=2))
    async with asyncio.timeout(10):
        await release.keep()
    assert there(machine) == {"a": 1, "b": 1}


async def test_what_never_passes_is_not_tried_for_ever(machine: Machine, release: BuiltIns) -> None:
    machine.cluster.faults.append(fail_calls("patch", CLUSTER_RL_RECIPE, Forbidden("no"), times=99))
    assert await release.once()


async def test_a_crd_that_is_not_there_yet_is_waited_for(machine: Machine, release: BuiltIns) -> None:
    machine.cluster.unserved.add(CLUSTER_RL_RECIPE)
    assert not await release.once()


def test_an_installation_of_any_name_fits_a_label() -> None:
    assert owner_label("rljob-system", "rljob") == "rljob-system.rljob"
    assert len(owner_label("n" * 63, "m" * 63)) == 32

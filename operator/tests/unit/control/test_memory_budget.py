"""What a namespace's jobs may keep of the operator's memory."""

from __future__ import annotations

from machine import rljob

from rljob.api.limits import OVER_BUDGET
from rljob.cluster.kinds import RL_RECIPE, RLJOB
from rljob.cluster.port import Listing
from rljob.control.memory_budget import MIB, MemoryBudget, kept_bytes
from rljob.control.packed import packed
from rljob.control.store import Key, Store
from rljob.core.observed import Manifest


def manifest(name: str, text: str, namespace: str = "team", kind: str = "RLJob", **status: object) -> Manifest:
    metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", "resourceVersion": "1"}
    made = rljob() | {"kind": kind, "metadata": metadata, "spec": {"suspend": True, "text": text}}
    return made | ({"status": status} if status else {})


def text_of(store: Store, name: str) -> object:
    found = store.job(Key("team", name))
    assert found is not None
    return found["spec"].get("text")


def small() -> Store:
    return Store(lambda _: None, MemoryBudget(MIB))


LARGE = "x" * 200_000
"""Three times as much is kept, so one fits."""


def test_a_quarter_of_the_rest_is_one_namespaces() -> None:
    assert MemoryBudget.of_container(512 * MIB, shared=True).limit == 80 * MIB
    assert MemoryBudget.of_container(512 * MIB, shared=False).limit == 320 * MIB
    assert MemoryBudget.of_container(128 * MIB, shared=True).limit == 8 * MIB
    assert MemoryBudget.of_container(0, shared=True).limit == 0


def test_the_job_that_does_not_fit_is_kept_without_its_spec_and_says_why() -> None:
    store = small()
    store.put(RLJOB, manifest("first", LARGE))
    store.put(RLJOB, manifest("second", LARGE))
    assert text_of(store, "first") == LARGE
    refused = store.job(Key("team", "second"))
    assert refused is not None
    assert refused["spec"]["suspend"] is True
    assert "would take 0.6 MiB" in refused["spec"][OVER_BUDGET]
    assert "of namespace team take 0.6 MiB of 1.0 MiB already" in refused["spec"][OVER_BUDGET]


def test_another_namespace_has_its_own_and_what_is_deleted_is_free() -> None:
    store = small()
    store.put(RLJOB, manifest("first", LARGE))
    store.put(RLJOB, manifest("first", LARGE, "others"))
    assert store.budget.of("others-first") == store.budget.of("team-first") > 0
    store.remove(RLJOB, manifest("first", LARGE))
    store.put(RLJOB, manifest("second", LARGE))
    assert text_of(store, "second") == LARGE


def test_recipes_count_and_those_of_all_namespaces_do_not() -> None:
    store = small()
    store.put(RL_RECIPE, manifest("r", LARGE, kind="RLRecipe"))
    store.put(RLJOB, manifest("first", LARGE))
    assert text_of(store, "first") is None


def test_a_job_that_began_keeps_its_spec_and_comes_first() -> None:
    store = small()
    begun = manifest("z-begun", LARGE, intent={"clusterName": "c"})
    store.merge(RLJOB, Listing((manifest("a-new", LARGE), begun), "1"))
    assert text_of(store, "z-begun") == LARGE
    assert text_of(store, "a-new") is None
    store.put(RLJOB, manifest("y-begun", LARGE, intent={"clusterName": "c"}))
    assert text_of(store, "y-begun") == LARGE


def edited(before: Manifest, **fields: object) -> Manifest:
    version = str(int(before["metadata"]["resourceVersion"]) + 1)
    return {**before, **fields, "metadata": {**before["metadata"], "resourceVersion": version}}


def test_a_job_that_began_does_not_grow_beyond_the_budget() -> None:
    store = small()
    begun = manifest("begun", "small", intent={"clusterName": "c"})
    store.put(RLJOB, begun)
    store.put(RLJOB, manifest("first", LARGE))
    store.put(RLJOB, edited(begun, spec={"text": LARGE, "stop": {"requested": True}}))
    kept = store.job(Key("team", "begun"))
    assert kept is not None
    assert OVER_BUDGET in kept["spec"]
    assert kept["spec"]["stop"] == {"requested": True}


def test_what_was_accepted_stays_when_others_have_grown() -> None:
    store = small()
    first = manifest("first", LARGE)
    store.put(RLJOB, first)
    store.put(RLJOB, manifest("begun", LARGE, intent={"clusterName": "c"}))
    store.put(RLJOB, edited(first, status={"state": "Pending"}))
    assert text_of(store, "first") == LARGE


def test_a_refused_job_is_kept_by_the_next_list_when_there_is_room() -> None:
    changed: list[Key] = []
    store = Store(changed.append, MemoryBudget(MIB))
    first, second = manifest("first", LARGE), manifest("second", LARGE)
    store.put(RLJOB, first)
    store.put(RLJOB, second)
    assert store.merge(RLJOB, Listing((first, second), "1")) == []
    assert text_of(store, "second") is None
    store.remove(RLJOB, first)
    changed.clear()
    assert store.merge(RLJOB, Listing((second,), "1")) == [], "no watch has missed it"
    assert text_of(store, "second") == LARGE
    assert changed == [Key("team", "second")]


def test_the_recipes_of_a_job_count_with_it() -> None:
    store = small()
    store.put(RL_RECIPE, manifest("r", "x" * 150_000, "team", "RLRecipe"))
    spec = {"recipeRef": {"kind": "RLRecipe", "name": "r"}}
    for number in range(3):
        store.put(RLJOB, {**manifest(f"job-{number}", ""), "spec": spec})
    kept = [store.job(Key("team", f"job-{number}")) for number in range(3)]
    assert [OVER_BUDGET in job["spec"] for job in kept if job] == [False, True, True]


def test_a_wide_text_counts_as_it_is_kept() -> None:
    wide = kept_bytes(packed(manifest("first", "\U0001f600" + "x" * 100_000), "spec"))
    narrow = kept_bytes(packed(manifest("first", "x" * 100_000), "spec"))
    assert wide < 1.1 * narrow

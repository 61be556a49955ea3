"""The Python client on a real API server: objects, watches that lose their connection or version, waits, and refusals.

No operator looks at these jobs, so the test writes their status.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders import small_spec
from contract.client_site import NOBODY, Gate, collect, manifest, set_state
from contract.conftest import KUBECONFIG

from rljob.client import (
    AlreadyExists,
    AsyncClient,
    Deleted,
    EventType,
    Invalid,
    JobEnded,
    JobFailed,
    NotAvailable,
    NotFound,
    RLJobSpec,
    RLJobWarning,
    State,
    Timeout,
    objects,
)
from rljob.client.objects import Scope
from rljob.client.refusals import ApiRequest
from rljob.client.watching import Watch
from rljob.cluster.kinds import POD, RLJOB

if TYPE_CHECKING:
    from contract.place import Place

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
    pytest.mark.parametrize("place", ["real"], indirect=True),
]


async def test_a_job_is_created_read_changed_and_deleted(client: AsyncClient, place: Place) -> None:
    made = await client.create(manifest("sums"))
    assert (made.namespace, made.name, made.state) == (place.namespace, "sums", State.PENDING)
    assert made.spec["managedBy"] == NOBODY
    assert await client.get("sums") == await client.get(f"{place.namespace}/sums") == made
    with pytest.raises(AlreadyExists, match=r"sums.*choose another name"):
        await client.create(manifest("sums"))
    assert (await client.suspend("sums")).spec["suspend"] is True
    assert (await client.resume(made)).spec["suspend"] is False
    restarted = await client.restart("sums")
    assert len(restarted.manifest["metadata"]["annotations"]) == 1
    assert (await client.stop("sums", now=True)).spec["stop"] == {"requested": True, "mode": "Immediate"}
    await client.delete(made, timeout=30)
    with pytest.raises(NotFound, match=rf"rljob {place.namespace}/sums does not exist; check the name"):
        await client.get("sums")
    with pytest.raises(NotFound):
        await client.delete("sums")


async def test_a_typed_spec_is_created_as_it_was_written(client: AsyncClient) -> None:
    spec = RLJobSpec.model_validate({**small_spec(), "managedBy": NOBODY, "verl": {"overrides": {"+a.b": 1}}})
    with pytest.warns(RLJobWarning, match="verl has no section a"):
        job = await client.create(spec, name="typed")
    assert (await client.validate(job.manifest)).spec.verl.overrides == {"+a.b": 1}
    assert isinstance(job.spec["verl"]["overrides"], str)
    assert "cleanup" not in job.spec, "defaults are left to the operator"


async def test_a_generated_name_is_that_of_the_server(client: AsyncClient) -> None:
    job = await client.create({"metadata": {"generateName": "sums-"}, "spec": manifest("x")["spec"]})
    assert job.name.startswith("sums-")
    assert len(job.name) == len("sums-") + 5


async def test_a_list_has_every_page_and_selects_by_labels(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PAGE", 2)
    for number in range(5):
        job = manifest(f"job-{number}")
        job["metadata"]["labels"] = {"team": "even" if number % 2 == 0 else "odd"}
        await client.create(job, validate=False)
    assert [job.name for job in await client.list()] == [f"job-{number}" for number in range(5)]
    assert [job.name for job in await client.list(label_selector="team=odd")] == ["job-1", "job-3"]
    everywhere = await client.list(all_namespaces=True)
    assert {job.name for job in everywhere} >= {"job-0", "job-4"}


async def test_an_invalid_job_is_refused_before_it_is_sent(client: AsyncClient) -> None:
    wrong = manifest("wrong", stepz=3, accelerator={"class": "abacus"})
    with pytest.raises(Invalid, match=r"spec\.stepz") as caught:
        await client.create(wrong)
    assert [violation.field for violation in caught.value.violations] == ["spec.stepz"]
    assert await client.list() == []


async def test_the_server_refuses_what_the_checks_did_not_see(client: AsyncClient) -> None:
    with pytest.raises(Invalid, match="unknown field") as unknown:
        await client.create(manifest("wrong", stepz=3), validate=False)
    assert "stepz" in str(unknown.value)
    with pytest.raises(Invalid) as long:
        await client.create(manifest("x" * 50), validate=False)
    assert any("40 characters" in violation.message for violation in long.value.violations), long.value.violations
    assert await client.list() == []


async def test_a_dry_run_creates_nothing(client: AsyncClient) -> None:
    assert (await client.create(manifest("sums"), dry_run=True)).name == "sums"
    assert await client.list() == []


async def test_recipes_of_the_cluster_are_merged_before_the_check(client: AsyncClient, place: Place) -> None:
    spec = small_spec()
    template = {name: value for name, value in spec.items() if name != "trainer"}
    recipe = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLRecipe", "metadata": {"name": "base"}}
    path = f"/apis/rljob.dev/v1alpha1/namespaces/{place.namespace}/rlrecipes"
    await client._connection.send(ApiRequest("POST", path, "base", (), recipe | {"spec": {"template": template}}))
    job = {"recipeRef": {"kind": "RLRecipe", "name": "base"}, "trainer": spec["trainer"], "managedBy": NOBODY}
    checked = await client.validate({"metadata": {"name": "sums"}, "spec": job})
    assert checked.spec.model.path == spec["model"]["path"]
    with pytest.raises(Invalid, match="RLRecipe absent does not exist"):
        await client.validate(
            {"metadata": {"name": "sums"}, "spec": job | {"recipeRef": {"name": "absent", "kind": "RLRecipe"}}}
        )


async def test_a_watch_reports_each_change(client: AsyncClient) -> None:
    await client.create(manifest("first"))
    async with contextlib.aclosing(client.watch()) as events:
        assert await collect(events, 1) == [(EventType.ADDED, "first")]
        job = await client.create(manifest("second"))
        await set_state(client, job, State.TRAINING)
        await client.delete("first")
        assert await collect(events, 3) == [
            (EventType.ADDED, "second"),
            (EventType.MODIFIED, "second"),
            (EventType.DELETED, "first"),
        ]


async def test_a_watch_continues_after_its_connection_is_cut(client: AsyncClient, place: Place, tmp_path: Path) -> None:
    gate = Gate()
    behind = await gate.start(tmp_path)
    await client.create(manifest("first"))
    through = AsyncClient(place.namespace, kubeconfig=behind)
    async with through, contextlib.aclosing(through.watch()) as events:
        assert await collect(events, 1) == [(EventType.ADDED, "first")]
        following = asyncio.create_task(collect(events, 2))
        await asyncio.sleep(0.3)
        before = gate.accepted
        gate.cut()
        await client.create(manifest("second"))
        await client.delete("first")
        assert await following == [(EventType.ADDED, "second"), (EventType.DELETED, "first")]
        assert gate.accepted > before
    await gate.stop()


async def test_a_watch_reports_what_happened_while_its_version_expired(client: AsyncClient, place: Place) -> None:
    first = await client.create(manifest("first"))
    await client.create(manifest("kept"))
    watch = Watch(client._connection, Scope(RLJOB, place.namespace))
    async with contextlib.aclosing(watch.events()) as events:
        await collect(events, 2)
        # Never more than a change at a time arrives, so the version can be set back between two of them.
        await client.delete(first)
        await client.create(manifest("second"))
        await collect(events, 2)
    expired = Watch(client._connection, Scope(RLJOB, place.namespace))
    expired._known, expired._version = {first.uid: first}, "1"
    async with contextlib.aclosing(expired.events()) as events:
        seen = await collect(events, 3)
    assert seen[0] == (EventType.DELETED, "first")
    assert sorted(seen[1:]) == [(EventType.ADDED, "kept"), (EventType.ADDED, "second")]


async def test_a_wait_ends_with_the_state_and_reports_every_change(client: AsyncClient) -> None:
    job = await client.create(manifest("sums"))
    seen: list[State] = []
    waiting = asyncio.create_task(
        client.wait(job, timeout=30, until=State.TRAINING, on_change=lambda now: seen.append(now.state))
    )
    await asyncio.sleep(0.3)
    await set_state(client, job, State.STARTING)
    await asyncio.sleep(0.3)
    await set_state(client, job, State.TRAINING, progress={"step": 3, "totalSteps": 9, "reward": "0.5"})
    trained = await waiting
    assert seen == [State.PENDING, State.STARTING, State.TRAINING]
    assert str(trained).endswith("Training  3/9  reward 0.5")
    progressed = await client.wait(job, timeout=5, until=lambda now: now.status.progress is not None)
    assert progressed.state is State.TRAINING
    await set_state(client, job, State.SUCCEEDED)
    assert (await client.wait("sums", timeout=5)).ended
    with pytest.raises(JobEnded, match="it ended before it was Queued") as ended:
        await client.wait("sums", timeout=5, until={State.QUEUED})
    assert ended.value.job.state is State.SUCCEEDED


async def test_a_wait_for_a_job_that_fails_says_why(client: AsyncClient) -> None:
    job = await client.create(manifest("sums"))
    await set_state(client, job, State.FAILED, reason="UserError", message="reward.py raised KeyError")
    with pytest.raises(JobFailed, match=r"Failed: reward\.py raised KeyError") as caught:
        await client.wait(job, timeout=5)
    assert caught.value.job.status.reason == "UserError"


async def test_a_wait_keeps_its_deadline(client: AsyncClient) -> None:
    await client.create(manifest("sums"))
    began = time.monotonic()
    with pytest.raises(Timeout, match=r"not at its end within 0\.5 s; last seen: .*sums  Pending") as caught:
        await client.wait("sums", timeout=0.5)
    assert time.monotonic() - began < 10
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.job is not None


async def test_a_wait_for_a_deleted_job_ends_even_if_another_one_has_its_name(client: AsyncClient) -> None:
    first = await client.create(manifest("sums"))
    waiting = asyncio.create_task(client.wait("sums", timeout=30))
    await asyncio.sleep(0.3)
    await client.delete(first)
    with pytest.raises(Deleted, match="deleted while it was waited for"):
        await waiting
    second = await client.create(manifest("sums"))
    for call in (client.get(first), client.wait(first, timeout=5)):
        with pytest.raises(Deleted, match="another job of this name"):
            await call
    with pytest.raises(Deleted, match="another job of this name"):
        await client.suspend(first)
    assert (await client.get("sums")).uid == second.uid


async def test_a_command_is_refused_by_a_pod_without_a_node_and_not_by_the_request(
    client: AsyncClient, place: Place
) -> None:
    spec = {"containers": [{"name": "ray-head", "image": "none"}], "schedulerName": "none"}
    metadata = {"name": "head", "namespace": place.namespace}
    await place.with_account({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path = POD.path(place.namespace, "head", "exec")
    with pytest.raises(NotAvailable, match=r"pod head does not run.*\(400\)"):
        await anext(client._connection.execute(path, "pod head", "ray-head", ["true"]))


async def test_a_job_without_a_run_has_neither_logs_nor_metrics(client: AsyncClient) -> None:
    job = await client.create(manifest("sums"))
    with pytest.raises(NotAvailable, match="has not started"):
        await client.metrics(job)
    with pytest.raises(NotAvailable, match="its attempts are none yet"):
        _ = [line async for line in client.logs(job)]

"""The watches on a real API server: kopf delivers events, and a kind that is served later is watched later."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import TYPE_CHECKING, Any

import pytest
from builders import small_spec
from contract.conftest import KUBECONFIG
from machine import Machine

from rljob.__main__ import bounded_session, connection_info
from rljob.cluster.kinds import CLUSTER_RL_RECIPE, POD, RL_RECIPE, RLJOB, Kind
from rljob.cluster.kube import load_configuration
from rljob.control.resync import Resync
from rljob.handlers import WatchEndedError, watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from contract.place import Place

    from rljob.core.observed import Manifest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
    pytest.mark.parametrize("place", ["real"], indirect=True),
    # kopf leaves its response objects to the garbage collector when it is stopped during a watch.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def without_garbage() -> Iterator[None]:
    """Collect what kopf leaves while the filters of this module hold, not at the end of the run."""
    yield
    gc.collect()


class Heard:
    """What the handlers recorded, and the kinds that the store considers served."""

    def __init__(self, place: Place) -> None:
        self.events: list[tuple[str, Kind, str]] = []
        machine = Machine()
        self.resync = Resync(machine.reconciler, 300, "me", place.namespace)

    def feed(self, event: str, kind: Kind, manifest: Manifest) -> None:
        self.events.append((event, kind, manifest["metadata"]["name"]))

    def serve(self, *kinds: Kind) -> None:
        self.resync.reconciler.store.served = frozenset(kinds)
        self.resync.served_changed.set()

    async def hears(self, wanted: Callable[[tuple[str, Kind, str]], bool]) -> None:
        async with asyncio.timeout(60):
            while not any(wanted(event) for event in self.events):  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0.05)


@pytest.fixture
async def heard(place: Place) -> AsyncIterator[Heard]:
    heard = Heard(place)
    heard.serve(POD)

    async def login() -> Any:  # noqa: ANN401 - kopf has no types here
        return bounded_session(await connection_info(await load_configuration(KUBECONFIG)))

    watching = asyncio.create_task(watch(heard.resync, heard.feed, login))
    yield heard
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def rljob(place: Place, name: str) -> dict[str, Any]:
    metadata = {"namespace": place.namespace, "name": name}
    spec = small_spec() | {"managedBy": "rljob.dev/contract-test"}
    return {"apiVersion": RLJOB.api_version, "kind": "RLJob", "metadata": metadata, "spec": spec}


async def test_a_kind_that_is_served_later_is_watched_from_then_on(place: Place, heard: Heard) -> None:
    before = await place.cluster.create(rljob(place, "before"))
    heard.serve(POD, RLJOB)
    await heard.hears(lambda event: event[1:] == (RLJOB, "before"))
    await place.cluster.create(rljob(place, "after"))
    await heard.hears(lambda event: event == ("ADDED", RLJOB, "after"))
    await place.cluster.delete(RLJOB, place.namespace, "before", before["metadata"]["uid"])
    await heard.hears(lambda event: event == ("DELETED", RLJOB, "before"))


async def test_recipes_of_the_whole_cluster_reach_an_operator_of_one_namespace(place: Place, heard: Heard) -> None:
    heard.serve(POD, RL_RECIPE, CLUSTER_RL_RECIPE)
    spec = {"template": {"trainer": {"steps": 1}}}
    made = await place.cluster.create(recipe(CLUSTER_RL_RECIPE, {"name": place.namespace}, spec))
    await heard.hears(lambda event: event[1:] == (CLUSTER_RL_RECIPE, place.namespace))
    await place.cluster.create(recipe(RL_RECIPE, {"name": "ours", "namespace": place.namespace}, spec))
    await heard.hears(lambda event: event[1:] == (RL_RECIPE, "ours"))
    await place.cluster.delete(CLUSTER_RL_RECIPE, "", place.namespace, made["metadata"]["uid"])
    await heard.hears(lambda event: event == ("DELETED", CLUSTER_RL_RECIPE, place.namespace))


def recipe(kind: Kind, metadata: dict[str, str], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


async def test_only_pods_of_heads_are_delivered(place: Place, heard: Heard) -> None:
    spec = {"containers": [{"name": "main", "image": "none"}], "nodeSelector": {"no-such": "node"}}
    for name, labels in (("other", {}), ("head", {"rljob.dev/job": "sums", "ray.io/node-type": "head"})):
        metadata = {"namespace": place.namespace, "name": name, "labels": labels}
        await place.with_account({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await heard.hears(lambda event: event[2] == "head")
    assert "other" not in {name for _, _, name in heard.events}


async def test_watches_that_cannot_log_in_end_with_an_error(place: Place) -> None:
    heard = Heard(place)
    heard.serve(POD)

    async def login() -> Any:  # noqa: ANN401 - kopf has no types here
        raise OSError("no credentials")

    with pytest.raises(WatchEndedError):
        async with asyncio.timeout(60):
            await watch(heard.resync, heard.feed, login)

"""Wide texts of a job: kept as UTF-8 by store and memories, and read as before."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from builders import small_spec
from doubles.clock import FrozenClock
from doubles.fake import FakeCluster
from doubles.fake_ray import FakeRay
from doubles.simulate import settle

from rljob.api.texts import write_texts
from rljob.cluster.kinds import CONFIG_MAP, RAY_CLUSTER, RLJOB
from rljob.cluster.token import TokenKey
from rljob.control.packed import PackedManifest, packed, waste
from rljob.control.pure_core import Core
from rljob.control.reconciler import Reconciler
from rljob.control.store import Key
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.render.configmap import SPEC_KEY
from rljob.render.labels import RESTART

KEY = Key("team", "sums")
NARROW, EMOJI, DASH = "x", "\U0001f600", "\u2013"


def spec_of(sign: str) -> dict[str, Any]:
    """Return a spec of 230 KiB whose texts contain a sign."""
    words = [f"{number}-{'x' * 4000}"[:4000] + sign for number in range(29)]
    services = [{"name": f"s{n}", "image": "a", "port": 9000 + n, "args": [f"{n}{w}" for w in words]} for n in range(2)]
    return write_texts(small_spec({"services": services}))


def texts_of(*roots: object) -> Iterator[str | bytes]:
    """Yield every long text that can be reached, once."""
    seen: set[int] = set()
    level = list(roots)
    while level:
        found = level.pop()
        if id(found) in seen or isinstance(found, type):
            continue
        seen.add(id(found))
        if isinstance(found, (str, bytes)):
            if len(found) >= 1000:
                yield found
        else:
            level += gc.get_referents(found)


@pytest.mark.parametrize("sign", [NARROW, DASH, EMOJI])
async def test_a_sign_makes_no_job_cost_several_times_its_size(sign: str) -> None:
    clock = FrozenClock()
    cluster = FakeCluster(clock.now)
    reconciler = Reconciler.build(cluster, FakeRay(), clock, TokenKey(b"k" * 32), core=Core(LAUNCHER, BUILT_IN))
    await reconciler.prime()
    cluster.watch(reconciler.feed)
    spec = spec_of(sign)
    metadata = {"namespace": KEY.namespace, "name": KEY.name}
    cluster.put({"apiVersion": RLJOB.api_version, "kind": "RLJob", "metadata": metadata, "spec": spec})
    await settle(reconciler)
    assert len(cluster.objects(RAY_CLUSTER)) == 1
    # Twice, because the second round of a started job reads the snapshot.
    cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(annotations={RESTART: "1"}))
    await settle(reconciler)
    (frozen,) = (item for item in cluster.objects(CONFIG_MAP) if SPEC_KEY in (item.get("data") or {}))
    assert [each["args"] for each in json.loads(frozen["data"][SPEC_KEY])["services"]] == [
        each["args"] for each in spec["services"]
    ]
    job = reconciler.store.job(KEY)
    assert job is not None
    assert job["spec"] == spec
    size = len(json.dumps(spec, ensure_ascii=False).encode())
    held = sum(map(sys.getsizeof, texts_of(reconciler.store._objects[RLJOB], reconciler.memories.by_uid)))
    # The spec as stored, merged, typed, and frozen as text and typed.
    assert held < 5.5 * size


def test_only_what_wastes_memory_is_packed() -> None:
    manifest = {"metadata": {"name": "a"}, "spec": {"words": ["y" * 20_000 + EMOJI, "\ud800"]}}
    kept = packed(manifest, "spec")
    assert isinstance(kept, PackedManifest)
    assert {**kept} == manifest
    assert waste("y" * 20_000 + EMOJI) > 3 * 20_000
    for small in ("y" * 20_000, "y" * 100 + EMOJI, "\u4f60" * 20_000, "\xfc" * 20_000):
        assert type(packed({"spec": {"words": [small]}}, "spec")) is dict

"""The whole process on a real API server with the largest objects that it stores: memory stays below the chart's limit.

Objects that were stored before the CRDs had bounds are simulated by a CRD without any, which the test installs and
replaces by the real one at its end.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from builders import small_spec
from contract.conftest import CRDS, KUBECONFIG
from contract.large_objects import (
    NUMBER,
    apply,
    create_all,
    empty_objects,
    manifest,
    memory_limit_mib,
    peak_mib,
    unbounded_crds,
)
from contract.operator_process import Process, until
from contract.test_bad_manifests import kubectl

from rljob.api.limits import SPEC_BYTES_MAX
from rljob.api.texts import write_texts
from rljob.cluster.kinds import CONFIG_MAP, RL_RECIPE, RLJOB

if TYPE_CHECKING:
    from contract.place import Place

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]


@pytest.fixture
def unbounded() -> Iterator[None]:
    """Install CRDs whose specs take anything."""
    with unbounded_crds():
        yield


REAL = pytest.mark.parametrize("place", ["real"], indirect=True)


async def invalid(place: Place, name: str) -> str:
    status = (await place.cluster.get(RLJOB, place.namespace, name)).get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    return str(conditions.get("Validated", {}).get("message", ""))


async def stays_small(place: Place, process: Process, says: str) -> None:
    """Wait until every job was answered, and look at the process."""

    async def answered() -> bool:
        assert process.process.returncode is None
        assert peak_mib(process) < memory_limit_mib()
        return all([says in await invalid(place, f"large-{number}") for number in range(NUMBER)])

    await until(answered)
    assert peak_mib(process) < memory_limit_mib()
    assert process.process.returncode is None
    assert await process.ready()


@pytest.mark.usefixtures("unbounded")
@REAL
async def test_jobs_stored_before_the_bounds_existed(place: Place, start: Callable[[], Awaitable[Process]]) -> None:
    spec = small_spec({"podSpecPatch": empty_objects()})
    create_all([manifest("RLJob", f"large-{n}", spec, place.namespace) for n in range(NUMBER)])
    process = await start()
    await until(process.ready)
    await stays_small(place, process, f"at most {SPEC_BYTES_MAX} are allowed; delete and recreate it")
    # And as they arrive at a process that watches already.
    for number in range(NUMBER):
        where = ("rljob", f"large-{number}", "-n", place.namespace)
        done = kubectl("patch", *where, "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
        assert done.returncode == 0, done.stderr
    await stays_small(place, process, "are allowed; delete and recreate it")
    assert await process.stop() == 0


@pytest.mark.usefixtures("unbounded")
@REAL
async def test_recipes_and_annotations_of_that_size(place: Place, start: Callable[[], Awaitable[Process]]) -> None:
    template = small_spec({"podSpecPatch": empty_objects()})
    recipes = [manifest("RLRecipe", f"r-{n}", {"template": template}, place.namespace) for n in range(NUMBER)]
    reference = [{"recipeRef": {"kind": "RLRecipe", "name": f"r-{n}"}} for n in range(NUMBER)]
    notes = {f"a{n}.example/x": "" for n in range(13_000)}
    jobs = [
        manifest("RLJob", f"large-{n}", spec, place.namespace, annotations=notes) for n, spec in enumerate(reference)
    ]
    create_all([*recipes, *jobs])
    process = await start()
    await until(process.ready)
    await stays_small(place, process, "are allowed; delete and recreate it")
    assert len((await place.cluster.list(RL_RECIPE, place.namespace)).items) == NUMBER
    assert await process.stop() == 0


@REAL
async def test_code_in_config_maps_of_a_mebibyte(place: Place, start: Callable[[], Awaitable[Process]]) -> None:
    for number in range(NUMBER):
        metadata = {"name": f"code-{number}", "namespace": place.namespace}
        data = {"reward.py": "#" * 1_000_000}
        await place.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    process = await start()
    await until(process.ready)
    jobs = [
        small_spec({"code": {"type": "ConfigMap", "configMap": {"name": f"code-{n}"}}, "suspend": False})
        for n in range(NUMBER)
    ]
    create_all([manifest("RLJob", f"large-{n}", spec, place.namespace) for n, spec in enumerate(jobs)])

    async def copied() -> bool:
        return len((await place.cluster.list(CONFIG_MAP, place.namespace, "rljob.dev/job")).items) >= NUMBER

    await until(copied)
    assert peak_mib(process) < memory_limit_mib()
    assert await process.ready()
    assert await process.stop() == 0


@REAL
async def test_the_real_crd_refuses_what_is_too_large(place: Place) -> None:
    apply(str(CRDS))
    words = ["x" * 4096] * 32
    fits = {"services": [{"name": "a", "image": "a", "port": 9000, "args": words}]}
    many = {"services": [{"name": f"a{n}", "image": "a", "port": 9000 + n, "args": words} for n in range(2)]}
    texts = {"verl": {"overrides": "a: " + "b" * 16_382}}
    odd = {"verl": {"overrides": "# " + "\U0001f600" * 8000}}
    for name, change, said in (
        ("fits", fits, ""),
        ("many", many, "the spec is larger than 256 KiB as JSON; move long texts into files on a volume"),
        ("long", texts, "16384"),
        ("odd", odd, ""),
    ):
        text = json.dumps(manifest("RLJob", name, write_texts(small_spec(change)), place.namespace))
        done = kubectl("create", "--dry-run=server", "-f", "-", text=text)
        assert (done.returncode == 0) == (said == ""), (name, done.stderr)
        assert said in done.stderr, name

"""The whole process on a real API server with the largest code that it copies: memory stays below the chart's limit.

The largest jobs and recipes are part of `test_hostile.py`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from builders import small_spec
from contract.conftest import CRDS, KUBECONFIG
from contract.large_objects import (
    NUMBER,
    apply,
    create_all,
    manifest,
    memory_limit_mib,
    peak_mib,
)
from contract.operator_process import Process, until
from contract.test_bad_manifests import kubectl

from rljob.api.texts import write_texts
from rljob.cluster.kinds import CONFIG_MAP

if TYPE_CHECKING:
    from contract.place import Place

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]


REAL = pytest.mark.parametrize("place", ["real"], indirect=True)


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

"""Workers of any Ray program are bound to the CPUs of the devices that Ray gives them."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from rljob_runtime.node import core_binding, ray_binding
from rljob_runtime.node.affinity import Locality, Plan
from rljob_runtime.trainer import WORKER_HOOK

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None, reason="verl is not installed here; the target `make test-image` runs it"
)
RUN = "bound-by-ray"
CPUS = sorted(os.sched_getaffinity(0))


def reporter() -> Any:
    """Return a function that reports what its process may use. Workers cannot import this module."""
    names = (core_binding.VISIBLE_DEVICES, core_binding.TORCH_NPU)

    def where(*_: object) -> dict[str, Any]:
        import os

        return {"cpus": sorted(os.sched_getaffinity(0)), **{name: os.environ.get(name) for name in names}}

    return where


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    if len(CPUS) < 2:
        pytest.skip("a plan for two devices needs two CPUs")
    plan = Plan({0: (CPUS[0],), 1: (CPUS[1],)}, (CPUS[0],), tuple(CPUS[:2]), Locality.NEAR, ())
    core_binding.write_plan(RUN, plan)
    variables = {core_binding.VARIABLE: RUN, **ray_binding.variables()}
    runtime_env = {"env_vars": variables, "worker_process_setup_hook": WORKER_HOOK}
    # Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="rb-", dir="/tmp") as folder:
        ray.init(
            num_cpus=2,
            resources={"NPU": 2},
            _temp_dir=folder,
            include_dashboard=False,
            runtime_env=runtime_env,
            logging_level="warning",
        )
        yield
        ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_a_worker_with_a_device_is_bound_to_its_cpus() -> None:
    import ray

    actor = ray.remote(num_cpus=0, resources={"NPU": 1})(type("Worker", (), {"where": reporter()}))
    actors = [actor.remote() for _ in range(2)]
    found = ray.get([each.where.remote() for each in actors])
    devices = sorted(int(each[core_binding.VISIBLE_DEVICES]) for each in found)
    assert devices == [0, 1]
    for each in found:
        device = int(each[core_binding.VISIBLE_DEVICES])
        assert each["cpus"] == [CPUS[device]]
        assert each[core_binding.TORCH_NPU] is not None


@pytest.mark.usefixtures("cluster")
def test_a_worker_without_a_device_keeps_to_the_cpus_for_data() -> None:
    import ray

    found = ray.get(ray.remote(reporter()).remote())
    assert (found["cpus"], found[core_binding.VISIBLE_DEVICES]) == (CPUS[:2], None)

"""The fork server under the real Ray and vLLM: who is forked, what it has, and that nothing stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ENDS_SECONDS = 60.0
PROGRAM = """
    import json, os, sys

    from omegaconf import OmegaConf

    from rljob_runtime import ray_cluster
    from rljob_runtime.fork_server import client
    from rljob_runtime.image_check.verl_choice import VerlChoice
    from rljob_runtime.stacks import register
    from rljob_runtime.verl_plugin import launcher
    from rljob_runtime.verl_plugin.platform import cpu_defaults

    RUN = "seams-attempt-1"
    variables = {**cpu_defaults.ENVIRONMENT, client.VARIABLE: RUN, register.VARIABLE: RUN}
    os.environ.update(variables)

    import patient_ray
    import ray
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    config = OmegaConf.create({"ray_kwargs": {"ray_init": {}}})
    launcher.prepare_processes(config, variables, VerlChoice())
    runtime_env = OmegaConf.merge(get_ppo_ray_runtime_env(), config.ray_kwargs.ray_init.runtime_env)
    runtime_env.env_vars.TRANSFER_QUEUE_ENABLE = "1"

    def look():
        command = open(f"/proc/{os.getppid()}/cmdline").read()
        loaded = {name for name in ("torch", "verl", "vllm.v1.engine.core") if name in sys.modules}
        own = register.root() / RUN / f"{os.getpid()}-{register.start_ticks(os.getpid())}{register.SUFFIX}"
        return {
            "forked": client.SERVER in command, "loaded": sorted(loaded), "tells stacks": own.exists(),
            "rank": os.environ.get("RANK"), "group": os.getpgid(0) == os.getpid(),
        }

    class Actor:
        def look(self):
            return look()

        def spawn(self):
            from vllm.platforms import current_platform
            from vllm.utils.system_utils import get_mp_context

            from rljob_runtime import vllm_plugin

            vllm_plugin.register()
            # As vLLM does before it makes an engine (platforms/cpu.py:221-305).
            os.environ.update(NUMEXPR_MAX_THREADS="2", TORCHINDUCTOR_CPP_DYNAMIC_THREADS="1", LD_PRELOAD="")
            context = get_mp_context()
            process = context.Process(target=os.system, args=("exit 0",), name="EngineCore")
            process.start()
            process.join()
            return context.get_start_method(), process.exitcode, client.folder(RUN).joinpath("log").read_text()

    patient_ray.install()
    ray.init(
        num_cpus=2, include_dashboard=False, resources={"NPU": 1}, _temp_dir=os.environ["TMPDIR"] + "/r",
        runtime_env=OmegaConf.to_container(runtime_env),
    )
    told = {"task": list(ray_cluster.on_device_nodes(look, 60).values())[0]}
    actors = [
        ray.remote(Actor).options(num_cpus=0, runtime_env={"env_vars": {"RANK": str(rank)}}).remote() for rank in (0, 1)
    ]
    told["actors"] = ray.get([actor.look.remote() for actor in actors])
    told["spawned"] = ray.get(actors[0].spawn.remote())
    print(json.dumps(told), flush=True)
    ray.shutdown()
"""


def processes_of(folder: str) -> list[str]:
    """Return the commands of the processes that have the folder in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().decode())
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, Any]]:
    folder = tempfile.mkdtemp(prefix="s-")
    program = Path(folder) / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    path = os.pathsep.join((os.environ["PYTHONPATH"], str(Path(__file__).parent)))
    environ = {**os.environ, "TMPDIR": folder, "HOME": folder, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, str(program)], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    deadline = time.monotonic() + ENDS_SECONDS
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    yield {**found, "left": left}
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_actor_is_forked_with_everything_loaded_and_its_own_environment(told: dict[str, Any], rank: int) -> None:
    assert told["actors"][rank] == {
        "forked": True,
        "loaded": ["torch", "verl", "vllm.v1.engine.core"],
        "tells stacks": True,
        "rank": str(rank),
        "group": True,
    }


def test_a_check_of_a_node_does_not_wait_for_the_server(told: dict[str, Any]) -> None:
    assert not told["task"]["forked"]
    assert told["task"]["loaded"] == []
    assert told["task"]["tells stacks"]


def test_a_process_of_an_engine_is_forked(told: dict[str, Any]) -> None:
    method, code, log = told["spawned"]
    assert (method, code) == ("spawn", 0)
    assert "not forked" not in log
    assert "not preloaded" not in log


def test_nothing_stays_after_ray(told: dict[str, Any]) -> None:
    assert told["left"] == []

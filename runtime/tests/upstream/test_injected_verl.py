"""An injected verl goes before an older one of the image, in the launcher and in the workers of the real Ray."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rljob_runtime

PROGRAM = """
    import json, os, sys, time

    from omegaconf import OmegaConf

    from rljob_runtime.fork_server import client, start
    from rljob_runtime.image_check import verl_choice
    from rljob_runtime.stacks import register
    from rljob_runtime.verl_plugin import launcher
    from rljob_runtime.verl_plugin.platform import cpu_defaults

    RUN = "injected-attempt-1"

    base = os.environ["PYTHONPATH"]
    begun = time.perf_counter()
    chosen = verl_choice.choose()
    seconds = time.perf_counter() - begun
    before = set(sys.modules) & {"torch", "ray", "verl", "vllm"}
    variables = cpu_defaults.ENVIRONMENT | {client.VARIABLE: RUN, register.VARIABLE: RUN}
    variables |= chosen.environment(os.environ)
    os.environ.update(variables)
    chosen.activate()
    start.begin_early(os.environ)

    import patient_ray
    import ray
    import verl
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    def look():
        import transfer_queue, verl

        plugin = "rljob_runtime.verl_plugin.plugin" in sys.modules
        return {
            "version": verl.__version__, "file": verl.__file__, "queue": transfer_queue.__file__, "plugin": plugin,
            "path": os.environ["PYTHONPATH"], "forked": client.SERVER in open(f"/proc/{os.getppid()}/cmdline").read(),
        }

    print(json.dumps({"chosen": chosen.version, "imported": sorted(before), "seconds": seconds, **look()}), flush=True)
    patient_ray.install()
    for ray_init in json.loads(sys.argv[1]):
        config = OmegaConf.create({"ray_kwargs": {"ray_init": ray_init}})
        launcher.prepare_processes(config, variables, chosen)
        runtime_env = OmegaConf.merge(get_ppo_ray_runtime_env(), config.ray_kwargs.ray_init.runtime_env)
        # As in a pod, Ray's own processes are older than the choice.
        os.environ["PYTHONPATH"] = base
        ray.init(
            num_cpus=1, include_dashboard=False, _temp_dir=os.environ["TMPDIR"] + "/r",
            runtime_env=OmegaConf.to_container(runtime_env),
        )
        os.environ.update(variables)
        print(json.dumps(ray.get(ray.remote(look).options(num_cpus=0).remote())), flush=True)
        ray.shutdown()
"""
ENTRY_POINTS = """\
[verl.plugins]
rljob = rljob_runtime.verl_plugin.plugin
"""


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """An injected runtime with the verl of this image, and an older verl that stands before the latter."""
    import transfer_queue
    import verl

    folder = Path(tempfile.mkdtemp(prefix="i-"))  # short, for Ray's sockets
    for name, file in (("code", rljob_runtime.__file__), ("verl", verl.__file__), ("verl", transfer_queue.__file__)):
        package = Path(str(file)).parent
        shutil.copytree(package, folder / "root" / name / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    info = "rljob_runtime-0.1.0.dist-info"
    write(folder / "root" / "code" / info / "METADATA", "Metadata-Version: 2.1\nName: rljob-runtime\nVersion: 0.1.0\n")
    write(folder / "root" / "code" / info / "entry_points.txt", ENTRY_POINTS)
    write(
        folder / "root" / "verl" / "verl-0.9.1.dist-info" / "METADATA",
        "Metadata-Version: 2.1\nName: verl\nVersion: 0.9.1\n",
    )
    write(folder / "old" / "verl-0.6.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: verl\nVersion: 0.6.0\n")
    write(folder / "old" / "verl" / "__init__.py", '__version__ = "0.6.0"\n')
    write(folder / "program.py", textwrap.dedent(PROGRAM))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def processes(folder: Path) -> list[dict[str, Any]]:
    """Return what the launcher sees, and a worker of each of two Rays: the job sets a path for the second."""
    own = str(Path(rljob_runtime.__file__).parents[1])
    rest = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != own]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(folder / "root" / "code"), str(folder / "old"), *rest, str(Path(__file__).parent)]
        ),
        "TMPDIR": str(folder),
        "HOME": str(folder),
    }
    inits: tuple[dict[str, Any], ...] = ({}, {"runtime_env": {"env_vars": {"PYTHONPATH": "/theirs:$PYTHONPATH"}}})
    command = [sys.executable, str(folder / "program.py"), json.dumps(inits)]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_an_older_verl_of_the_image_is_replaced_in_every_process(folder: Path, processes: list[dict[str, Any]]) -> None:
    launcher, worker, _ = processes
    assert launcher["chosen"] == "0.9.1 (injected)"
    assert launcher["imported"] == []
    for process in (launcher, worker):
        assert process["version"] == "0.9.1"
        assert process["file"] == f"{folder}/root/verl/verl/__init__.py"
        assert process["queue"] == f"{folder}/root/verl/transfer_queue/__init__.py"
        assert process["plugin"]
    # The fork server forks only for processes with the same variables.
    assert worker["path"] == launcher["path"]
    assert worker["forked"]
    print(f"chosen in {launcher['seconds']:.3f} s")


def test_a_path_that_the_job_sets_for_ray_comes_after_the_injected_verl(
    folder: Path, processes: list[dict[str, Any]]
) -> None:
    _, _, worker = processes
    assert worker["path"].startswith(f"{folder}/root/code:{folder}/root/verl:/theirs")
    assert worker["version"] == "0.9.1"

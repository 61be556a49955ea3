"""A head and three A2 nodes. Facts are gathered by the real code on simulated tools and machines.

A test breaks one thing on one node (or on all), gathers all facts, and checks the launcher's conclusions.
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from rljob_runtime.contract import JobConfig, MinimumVersion, NodeNeeds, Platform, RequiredPath
from rljob_runtime.node import topology
from rljob_runtime.node.hccl import Interface
from rljob_runtime.node_checks import gather as gathering
from rljob_runtime.node_checks import preflight
from rljob_runtime.node_checks.evaluate import Finding, Unresponsive, Window, evaluate
from rljob_runtime.node_checks.facts import NodeFacts, Request, SharedFolder
from runtime.tests.conftest import MakeJob
from runtime.tests.fake_ascend import A2, HOSTS, Host

GIB = 1 << 30
RUN = "sums-uid01-1-attempt-1"
TOKEN = ".rljob-preflight-x"
ALLOWED = HOSTS["A2, Kunpeng, 8 NUMA nodes"].allowed


@dataclass
class Node:
    """The simulated environment of one pod."""

    name: str
    host: Host
    root: Path
    """Its file system: the job's paths are below this folder."""
    environ: dict[str, str] = field(default_factory=dict)
    cpus: frozenset[int] = ALLOWED
    shared_memory: int = 64 * GIB
    open_files: int = 65536
    free: int = 200 * GIB
    clock: float = 0.0
    """Seconds ahead of the head's clock."""
    tools: tuple[str, ...] = ("npu-smi", "hccn_tool")
    answers: dict[str, str] = field(default_factory=dict)
    """Commands -> their output instead of the host's."""
    cann: str = "9.1.0"
    torch_npu: str = "2.10.0.post4"
    unshared: str = ""
    """Content of its own volume instead of the token; empty if the volume is shared."""
    silent: bool = False


@dataclass
class Cluster:
    """The head and its nodes."""

    job: JobConfig
    head: Node
    nodes: list[Node]

    def ask(self) -> tuple[list[NodeFacts], list[Finding]]:
        """Gather and evaluate as node_checks/preflight.py does, in one simulated second."""
        asked = time.time()
        facts = [self._answer(self.head, asked, is_head=True)]
        facts += [self._answer(node, asked) for node in self.nodes if not node.silent]
        silent = [Unresponsive(node.name) for node in self.nodes if node.silent]
        return facts, evaluate(self.job, facts, Window(asked, asked + 1), silent)

    def _answer(self, node: Node, asked: float, *, is_head: bool = False) -> NodeFacts:
        with pytest.MonkeyPatch.context() as patch:
            tools = node.host.install(node.root / "tools")
            for command, text in node.answers.items():
                (tools / "answers" / command).write_text(text)
            for tool in {"npu-smi", "hccn_tool"} - set(node.tools):
                (tools / tool).unlink()
            variables = {"PATH": f"{tools}:/usr/bin:/bin", "RLJOB_NODE_NAME": node.name}
            for name, value in (variables | node.environ).items():
                patch.setenv(name, value)
            patch.setattr("rljob_runtime.node.ascend_tools.HCCN_PATHS", "")
            patch.setattr(topology, "usable_cpus", lambda: node.cpus)
            patch.setattr(gathering, "SHARED_SECONDS", 0.0)
            limits = (node.open_files, node.open_files)
            played = SimpleNamespace(getrlimit=lambda _: limits, RLIMIT_NOFILE=7, RLIM_INFINITY=-1)
            patch.setattr(gathering, "resource", played)
            patch.setattr(gathering, "shutil", SimpleNamespace(disk_usage=lambda path: _usage(node, path)))
            patch.setattr(gathering, "cann_version", lambda: node.cann)
            patch.setattr(gathering, "_installed", lambda _: node.torch_npu)
            clock = SimpleNamespace(time=lambda: asked + node.clock, monotonic=time.monotonic, sleep=lambda _: None)
            patch.setattr(gathering, "time", clock)
            found = (Interface("lo", "127.0.0.1"), Interface("eth0", "10.244.1.7"), Interface("net1", "192.168.1.7"))
            patch.setattr("rljob_runtime.node.hccl.read_interfaces", lambda: found)
            patch.setattr("tempfile.tempdir", str(node.root))
            # The job's paths are relative, and each node has its own root.
            patch.chdir(node.root)
            return gathering.gather(self._request(node), is_head=is_head)

    def _request(self, node: Node) -> Request:
        """Return the node's request, with the job's paths moved into its own file system."""
        wanted = preflight.request(self.job, RUN, ())
        folder = node.root / "checkpoints"
        (folder / TOKEN).write_text(node.unshared or "token")
        return Request(
            run=wanted.run,
            devices=wanted.devices,
            with_npus=wanted.with_npus,
            paths=wanted.paths,
            folders=(SharedFolder("checkpoint.path", str(folder), TOKEN, "token"),),
            model=str(node.root / "model"),
            bind_cpus_min=None,
            exclusive_cpus=None,
        )


def _usage(node: Node, path: str) -> SimpleNamespace:
    return SimpleNamespace(total=node.shared_memory if path == gathering.SHARED_MEMORY else 500 * GIB, free=node.free)


def write_model(folder: Path) -> None:
    """Write a model of two shards with an index."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    weight_map = {}
    for shard in (1, 2):
        name = f"model-0000{shard}-of-00002.safetensors"
        header = json.dumps({f"w{shard}": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        (folder / name).write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
        weight_map[f"w{shard}"] = name
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def make_cluster(tmp_path: Path, make_job: MakeJob) -> Cluster:
    """Return a healthy cluster: three nodes with eight NPUs each."""
    job = make_job(
        platform=Platform.NPU,
        nodes=3,
        devices=24,
        dies_per_card=1,
        required_paths=(RequiredPath("reward.path", "reward.py"),),
        needs=NodeNeeds(
            cpus=184,
            whole_node=True,
            shared_memory_bytes=64 * GIB,
            chips=("910B",),
            versions=(MinimumVersion("firmware", "7.5.0.1.129"),),
        ),
    )
    names = ("head", "node-1", "node-2", "node-3")
    made = []
    for index, name in enumerate(names):
        node = Node(name, A2.with_(network=f"29.1.{index}"), tmp_path / name)
        node.environ["RLJOB_POD_IP"] = "10.244.1.7"
        write_model(node.root / "model")
        (node.root / "checkpoints").mkdir()
        (node.root / "reward.py").write_text("")
        made.append(node)
    return Cluster(job, made[0], made[1:])

"""Check one node with real NPUs: gather, evaluate and plan as before a run, then bind real processes.

A script for people with hardware (README.md); runs do not call it. It needs rljob-runtime, and torch_npu for
`--binding`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import threading
import time

from rljob_runtime.contract import CONTRACT_VERSION, ExitCode, JobConfig, NodeNeeds, Platform
from rljob_runtime.node import affinity, core_binding, topology
from rljob_runtime.node_checks import evaluate, report
from rljob_runtime.node_checks.gather import gather, read_npus
from rljob_runtime.node_checks.preflight import request
from rljob_runtime.outcomes import RefusedError

RUN = "npu-checks"
WHERE = "run this on a node with NPUs, in a pod that has its devices and its driver (runtime/npu_checks/README.md)"
COMPUTE_SECONDS = 10.0
START_SECONDS = 180.0
"""CANN compiles the first operators during this time."""


def main() -> int:
    """Check this node and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binding", action="store_true", help="bind and compute on every device")
    parser.add_argument("--compute", type=int, metavar="DEVICE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compute is not None:
        return compute(options.compute)
    os.environ[core_binding.VARIABLE] = RUN
    npus = read_npus()
    devices = len(npus.devices or ())
    if not devices:
        return refused(ExitCode.ENVIRONMENT, "DevicesMissing", f"{npus.error or 'npu-smi shows no device'}; {WHERE}")
    job = example(devices)
    asked = time.time()
    facts = [gather(request(job, RUN, ()))]
    findings = evaluate.evaluate(job, facts, evaluate.Window(asked, time.time()))
    print(report.text(report.preflight(job, facts, findings, time.time() - asked)))
    for line in (facts[0].plan, *facts[0].plan_notes):
        print(f"core binding: {line}")
    try:
        evaluate.refuse(job, facts, findings)
    except RefusedError as error:
        return refused(error.code, error.reason, str(error))
    return check_binding(devices) if options.binding else 0


def refused(code: ExitCode, reason: str, message: str) -> int:
    """Print why the check of this node ends here; return the exit code."""
    print(json.dumps({"exitCode": int(code), "reason": reason, "message": message}))
    return int(code)


def example(devices: int) -> JobConfig:
    """Return a job that has this whole node and no other requirements."""
    return JobConfig(
        version=CONTRACT_VERSION,
        namespace="default",
        name=RUN,
        uid=RUN,
        cluster_name=RUN,
        cluster_generation=1,
        platform=Platform.NPU,
        nodes=1,
        devices=devices,
        dies_per_card=1,
        total_steps=1,
        overrides={},
        core_binding=True,
        needs=NodeNeeds(whole_node=True),
    )


def check_binding(devices: int) -> int:
    """Start a process per device as a run does, and check the threads of all processes while they compute."""
    plan = core_binding.read_plan(RUN)
    if plan is None:
        print(json.dumps({"exitCode": 1, "reason": "NoPlan"}))
        return 1
    children = [
        subprocess.Popen([sys.executable, __file__, "--compute", str(device)], stdout=subprocess.PIPE, text=True)
        for device in range(devices)
    ]
    # A process that has not started by then returns an empty line.
    late = threading.Timer(START_SECONDS, _end, [children])
    late.start()
    try:
        begun = [child.stdout.readline().strip() for child in children if child.stdout is not None]
        seen = [one for one in core_binding.look(RUN) if one.role is core_binding.Role.TRAINER]
    finally:
        late.cancel()
        _end(children)
    for one in seen:
        print(f"{one.pid}: wanted {one.wanted}, strayed {one.strayed or 'nowhere'}")
    outside = [cpu for one in seen for cpu in affinity.parse_cpus(one.strayed)]
    beyond = set(outside) - topology.usable_cpus()
    good = begun.count("computes") == devices == len(seen) and not outside
    print(json.dumps({"exitCode": int(not good), "computing": begun.count("computes"), "beyondCpuset": sorted(beyond)}))
    return int(not good)


def _end(children: list[subprocess.Popen[str]]) -> None:
    for child in children:
        child.kill()


def compute(device: int) -> int:
    """Bind as a trainer does, then compute for a while."""
    core_binding.bind_device_worker(core_binding.Role.TRAINER, [device])
    import torch

    importlib.import_module("torch_npu")  # defines torch.npu
    torch.npu.set_device(device)
    square = torch.randn(2048, 2048, device=f"npu:{device}", requires_grad=True)
    (square @ square).sum().backward()
    torch.npu.synchronize()
    print("computes", flush=True)
    until = time.monotonic() + COMPUTE_SECONDS
    while time.monotonic() < until:
        (square @ square).sum().backward()
        torch.npu.synchronize()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

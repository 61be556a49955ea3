"""`rljob conformance`: wire plan, run and pages together."""

from __future__ import annotations

import argparse
import json
import secrets
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from types import FrameType

from rljob.api.accelerators import AcceleratorFacts
from rljob.cli import kubectl
from rljob.cli.conformance.claims import CLAIMS
from rljob.cli.conformance.facts import ConformancePlan, Facts
from rljob.cli.conformance.manifests import read_quickstart, samples_per_step
from rljob.cli.conformance.page import document, has_failed, text_page
from rljob.cli.conformance.run import Run, say
from rljob.cli.errors import UsageError
from rljob.cli.output import DATA, data_page
from rljob.cli.status import table
from rljob.cli.verbs.version import own_version
from rljob.render.accelerator_table import AcceleratorTable
from rljob_runtime.contract import Platform

FAILED, INTERRUPTED = 1, 130
CPU_DEVICES = 2
ONE_NODE = "ReadWriteOnce"
STEPS_MIN = 16
"""A checkpoint at step 5, and the steps that pass until kill and suspension are seen."""


def conformance(chosen: argparse.Namespace, stack: Mapping[str, str]) -> int:
    """Run all stages, print the claims, and return the exit code."""
    if chosen.list:
        print(table([(c.id, "NPU" if c.needs_npu else "any class", c.confirms) for c in CLAIMS]))
        return 0
    plan, facts = read_plan(chosen, chosen.accelerators)
    if chosen.report is not None and not chosen.report.absolute().parent.is_dir():
        raise UsageError(f"--report {chosen.report}: no such folder; create it first")
    place = kubectl.Place(chosen.namespace, chosen.context)
    signal.signal(signal.SIGTERM, _interrupt)
    begin = _now()
    say(f"run {plan.run}: {plan.devices} devices of class {plan.accelerator}, image {plan.image}")
    run = Run(Facts(plan), facts, place)
    rows = run.go()
    own = {"rljob": own_version(), **{f"made for {name}": release for name, release in stack.items()}}
    made = document(rows, run.facts, own, begin, _now())
    text = json.dumps(made, indent=2, ensure_ascii=False)
    if chosen.report is not None:
        chosen.report.write_text(text + "\n", encoding="utf-8")
        say(f"wrote {chosen.report}")
    if chosen.output in DATA:
        print(data_page([made], chosen.output, [claim["id"] for claim in made["claims"]]))
    else:
        print(text_page(rows, run.facts, {"rljob": own["rljob"]}))
    if run.facts.interrupted:
        return INTERRUPTED
    return FAILED if has_failed(rows) else 0


def read_plan(chosen: argparse.Namespace, accelerators: AcceleratorTable) -> tuple[ConformancePlan, AcceleratorFacts]:
    """Return what to do. Raise UsageError if the arguments do not fit together."""
    name = chosen.accelerator_class
    if name not in list(accelerators):
        raise UsageError(f"--class {name}: there is no such class; choose one of {', '.join(accelerators)}")
    facts = accelerators[name]
    is_npu = facts.platform is Platform.NPU
    image = chosen.image or (None if is_npu else _quickstart_image())
    if image is None:
        raise UsageError(f"--class {name} needs --image, an image with verl for this hardware")
    if chosen.access_mode == ONE_NODE and chosen.node is None:
        raise UsageError("--access-mode ReadWriteOnce needs --node, because head and worker must share the volume")
    devices = chosen.devices or (facts.devices_per_node if is_npu else CPU_DEVICES)
    if devices > facts.devices_per_node:
        raise UsageError(f"--devices {devices}: a node of class {name} has {facts.devices_per_node}")
    samples = samples_per_step()
    if samples % devices:
        fitting = [str(count) for count in range(1, facts.devices_per_node + 1) if samples % count == 0]
        raise UsageError(
            f"--devices {devices}: the {samples} samples of a step do not divide over {devices} devices; "
            f"use one of {', '.join(fitting)}"
        )
    if chosen.steps < STEPS_MIN:
        raise UsageError(
            f"--steps {chosen.steps}: kill and suspension happen between steps, so it needs at least {STEPS_MIN}"
        )
    plan = ConformancePlan(
        run=secrets.token_hex(3),
        accelerator=name,
        resource=facts.resource,
        is_npu=is_npu,
        devices=devices,
        image=image,
        node_labels=facts.node_labels,
        queue=chosen.queue,
        gang=chosen.gang,
        storage_class=chosen.storage_class,
        access_mode=chosen.access_mode,
        node=chosen.node,
        pull_secrets=tuple(chosen.image_pull_secret),
        keep=chosen.keep,
        steps=chosen.steps,
    )
    return plan, facts


def _quickstart_image() -> str:
    job = next(one for one in read_quickstart() if one["kind"] == "RLJob")
    return str(job["spec"]["runtime"]["image"])


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"

"""Read the objects that explain why a job does not run, for `rljob describe` and `rljob conformance`."""

from __future__ import annotations

from dataclasses import replace

from rljob.cli import kubectl
from rljob.cli.describe import World
from rljob.core.observed import Manifest
from rljob.render import labels


def read_world(job: Manifest, place: kubectl.Place) -> World:
    """Read what the checks of `describe` use, as far as the caller may."""
    mine = f"{labels.JOB_UID}={job['metadata']['uid']}"
    world = World(job, clusters=kubectl.list_readable("rayclusters.ray.io", place, "--selector", mine) or ())
    if world.cluster is not None:
        pods = kubectl.list_readable("pods", place, "--selector", f"{labels.RAY_CLUSTER}={world.cluster_name}")
        events = kubectl.list_readable("events.events.k8s.io", place, "--field-selector", "type=Warning")
        world = replace(world, pods=pods or (), events=events or ())
    if world.is_queued:
        world = replace(world, workloads=kubectl.list_readable("workloads.kueue.x-k8s.io", place))
    if world.unscheduled:
        world = replace(world, nodes=kubectl.list_readable("nodes", place))
    return world

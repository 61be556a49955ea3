"""What a launcher offers the planner: an optional interface, used by `rljob plan`.

The operator never imports it, and so loads none of the planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rljob.api.launcher import LauncherType
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.layout_job import layout_job
from rljob.launchers.verl.rollout_setup import rollout_setup
from rljob.planner.layouts import Job
from rljob.planner.rollout.setup import Setup
from rljob_runtime.planning.shapes import Shape


class Planned(Protocol):
    """How a framework splits a model, generates and trains. Every member is pure."""

    def rollout_setup(self, spec: RLJobSpec, shape: Shape) -> Setup:
        """Return the rollout of a step as it can be simulated."""

    def layout_job(self, spec: RLJobSpec, shape: Shape) -> Job | None:
        """Return the facts from which layouts are planned; None where the memory of a die is not known."""


class PlannedVerl:
    """Implements `Planned` for verl."""

    def rollout_setup(self, spec: RLJobSpec, shape: Shape) -> Setup:
        """Return the rollout of a step."""
        return rollout_setup(spec, shape)

    def layout_job(self, spec: RLJobSpec, shape: Shape) -> Job | None:
        """Return the facts from which layouts are planned."""
        return layout_job(spec, shape)


PLANNED: Mapping[LauncherType, Planned] = {LauncherType.VERL: PlannedVerl()}
"""Launchers whose jobs can be planned; how a command generates and is split is not known."""

"""The names of the API group, without its types, so that a caller which only names a resource loads no model."""

from __future__ import annotations

GROUP = "rljob.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
RESTART = f"{GROUP}/restart"
"""Annotation that users set on an RLJob: any new value lets the run save a checkpoint and continue in a new cluster."""

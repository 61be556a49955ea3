"""The jobs of files, judged as the operator judges them, for every command that reads manifests."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from rljob.api.training import MemoryCheck
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.known_launchers import LAUNCHER
from rljob.cli.manifests import Files, JobManifest, read_files
from rljob.core.observed import Manifest
from rljob.core.scheduling.discovery import Nodes, missing_hardware, node_facts
from rljob.core.spec.recipes import NOT_IN_CLUSTER, Recipes, complete
from rljob.core.validation import launcher_fields
from rljob.core.validation.document import NOT_IN_FILES, validate_document
from rljob.core.validation.validate import Checked
from rljob.core.validation.violation import Violation

CLAIM = "PersistentVolumeClaim"
DENIED = "denied request"
"""In the answer of an admission policy (k8s.io/apiserver v0.36.2, pkg/admission/plugin/policy/validating)."""
Judged = list[tuple[JobManifest, Checked]]


def chosen_files(chosen: argparse.Namespace) -> Files:
    """Return the content of the files of -f."""
    return read_sources(chosen.file, chosen)


def read_sources(sources: Sequence[str], chosen: argparse.Namespace, given: str | None = None) -> Files:
    """Return the content of files, and report which folders were not read; `given` is the text of standard input."""
    files = read_files(sources, chosen.namespace, given)
    if files.skipped:
        print(f"rljob: note: {files.note}", file=sys.stderr)
    return files


def valid(chosen: argparse.Namespace) -> Judged | None:
    """Return the jobs of the files, or None if one is invalid; print all violations and warnings."""
    judged = judge(chosen_files(chosen), chosen)
    complain(judged)
    return judged if all(checked.spec is not None for _, checked in judged) else None


def judge(files: Files, chosen: argparse.Namespace, memory_check: MemoryCheck | None = None) -> Judged:
    """Return each job of the files with its merged spec."""
    judged = []
    for job in files.jobs:
        spec = _with_memory_check(job.spec, memory_check) if memory_check else job.spec
        recipes = _recipes(job, files.recipes, chosen)
        checked = validate_document(
            {**job.document, "spec": spec},
            recipes,
            launcher=LAUNCHER,
            accelerators=chosen.accelerators,
            absent=NOT_IN_CLUSTER if chosen.cluster else NOT_IN_FILES,
        )
        judged.append((job, checked))
    return judged


def with_cluster(judged: Judged, files: Files, chosen: argparse.Namespace) -> Judged:
    """Return valid jobs with warnings about what the cluster lacks, as far as the caller may look."""
    if not chosen.cluster or all(checked.spec is None for _, checked in judged):
        return judged
    listed = kubectl.list_readable("nodes", kubectl.Place(context=chosen.context))
    nodes = Nodes(tuple(node_facts(node, chosen.accelerators) for node in listed or ()))
    made = frozenset(str(each["metadata"].get("name")) for each in files.others if each.get("kind") == CLAIM)
    claims = {
        namespace: kubectl.list_readable("persistentvolumeclaims", kubectl.Place(namespace, chosen.context))
        for namespace in sorted({job.namespace for job, checked in judged if checked.spec is not None})
    }
    return [(job, _with_missing(checked, nodes, claims.get(job.namespace), made)) for job, checked in judged]


def _with_missing(checked: Checked, nodes: Nodes, claims: Sequence[Manifest] | None, made: frozenset[str]) -> Checked:
    if checked.spec is None:
        return checked
    missing = (
        missing_claims(checked.spec, {each["metadata"]["name"] for each in claims} | made) if claims is not None else ()
    )
    return replace(checked, warnings=(*missing_hardware(checked.spec, nodes), *missing, *checked.warnings))


def missing_claims(spec: RLJobSpec, there: AbstractSet[str]) -> Iterator[Violation]:
    """Yield a warning for each claim of the pods that does not exist."""
    groups = [(f"spec.workerGroups[{group.name}].template", group.template) for group in spec.worker_groups]
    for field, template in (("spec.head.template", spec.head.template), *groups):
        for volume in template.volumes:
            claim = volume.persistent_volume_claim
            if claim is not None and claim.claim_name not in there:
                yield Violation(
                    f"{field}.volumes[{volume.name}]",
                    f"the namespace has no PersistentVolumeClaim {claim.claim_name}; create it, or correct the name",
                )


def with_dry_run(judged: Judged, chosen: argparse.Namespace) -> Judged:
    """Return jobs of which those are invalid that the API server refuses, for example by a policy on admission."""
    return [(job, _dry_run(job, checked, chosen) if chosen.cluster else checked) for job, checked in judged]


def _dry_run(job: JobManifest, checked: Checked, chosen: argparse.Namespace) -> Checked:
    if checked.spec is None:
        return checked
    words = ["apply" if job.is_named else "create", "--dry-run=server", "--filename", "-"]
    try:
        kubectl.run(words, kubectl.Place(job.namespace, chosen.context), text=json.dumps(job.document))
    except UsageError as error:
        # A user who may not create jobs may still check them.
        if DENIED in str(error):
            return replace(checked, spec=None, violations=(Violation("spec", f"the API server refuses it: {error}"),))
    return checked


def complain(judged: Judged, *, warnings: bool = True) -> None:
    """Print the violations of each job, and the warnings of valid ones."""
    for job, checked in judged:
        for violation in checked.violations:
            print(f"{job.source}: {job.name or 'RLJob without a name'}: {violation}", file=sys.stderr)
        for warning in checked.warnings if warnings and checked.spec is not None else ():
            print(f"{job.source}: {job.name}: warning: {warning}", file=sys.stderr)


def _with_memory_check(spec: Mapping[str, Any], check: MemoryCheck) -> dict[str, Any]:
    """Report memory that does not fit as a table instead of a violation, where the launcher plans it."""
    if not launcher_fields.reads_of(spec).includes("model"):
        return dict(spec)
    model = spec.get("model")
    return {**spec, "model": {**(model if isinstance(model, Mapping) else {}), "memoryCheck": check.value}}


def _recipes(job: JobManifest, known: Recipes, chosen: argparse.Namespace) -> Recipes:
    """Add recipes that only the cluster has to the recipes of the files, if the cluster may be read."""
    if not chosen.cluster:
        return known
    place = kubectl.Place(job.namespace, chosen.context)
    return complete(job.spec, known, lambda recipe: kubectl.find_recipe(recipe, place))

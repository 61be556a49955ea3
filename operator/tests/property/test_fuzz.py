"""Whatever a manifest contains, validation does not fail, names the field, and accepted manifests can be rendered.

Documents are the examples, the golden jobs and the recipes, with fields changed by the schema. RLJOB_FUZZ_EXAMPLES sets
their number (`make fuzz`: 20,000); statistics are printed at the end.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from builders import NOW, Json, job, small_spec, validate
from corpus import BAD
from hypothesis import given, settings
from property.documents import GOOD_SPECS, RECIPES, SPECS
from property.mutations import METADATA, manifests, mutations, texts

from rljob.api.v1alpha1 import API_VERSION
from rljob.api.yaml11 import load_all
from rljob.cli.errors import UsageError
from rljob.cli.explain import read_path
from rljob.cli.manifests import collect
from rljob.core.observed import Observed
from rljob.core.reconcile import reconcile
from rljob.core.spec.recipes import recipe_id
from rljob.core.validation.document import validate_document
from rljob.core.validation.validate import Checked
from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.accelerators import BUILT_IN
from rljob.render.initializer import build_initializer, initializers
from rljob.render.names import JobIdentity

EXAMPLES = int(os.environ.get("RLJOB_FUZZ_EXAMPLES", "300"))
IDENTITY = JobIdentity("team", "sums", "0a1b2c3d")
FIELD = re.compile(r"(metadata\.name|((Cluster)?RLRecipe [^:]*: )?spec(\b.*)?)", re.DOTALL)
"""Fields of a spec, and of recipes."""
SPEC = re.compile(r"spec([.\[]|$)")
OUTSIDE = re.compile(r"((Cluster)?RLRecipe .*: )?(?!spec\b)\S.*", re.DOTALL)
"""Fields beside the spec of a manifest in a file, whose keys are anything."""
COUNTS: Counter[str] = Counter()


BAD_SPECS = [bad.spec for bad in BAD.values()]


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    """Print the statistics."""
    started = time.perf_counter()
    yield
    seconds = time.perf_counter() - started
    fields = sum(1 for name in COUNTS if name.startswith("spec"))
    manifests, documents = COUNTS["accepted"] + COUNTS["refused"], len(GOOD_SPECS) + len(BAD_SPECS)
    print(
        f"\nfuzz: {manifests} manifests from {documents} documents in {seconds:.0f} s: "
        f"{COUNTS['accepted']} accepted and rendered, {COUNTS['refused']} refused at {fields} different fields; "
        f"{COUNTS['refused as a file']} files and {COUNTS['refused as YAML']} texts refused"
    )


@settings(max_examples=EXAMPLES)
@given(spec=mutations(GOOD_SPECS) | mutations(GOOD_SPECS) | mutations(BAD_SPECS))
def test_no_manifest_crashes_and_what_is_accepted_can_be_made(spec: Json) -> None:
    judge(validate("sums", spec, {recipe_id(recipe): recipe for recipe in RECIPES}))
    # The API server sends JSON, and the first round with it must work as well.
    if is_json(spec):
        reconcile(Observed(job(spec), snapshot=None), NOW, LAUNCHER, BUILT_IN)


@settings(max_examples=max(EXAMPLES // 10, 30))
@given(template=mutations([small_spec(), *(recipe["spec"]["template"] for recipe in RECIPES)]))
def test_no_recipe_crashes(template: Json) -> None:
    recipe = {"kind": "RLRecipe", "metadata": {"name": "r"}, "spec": {"template": template}}
    judge(validate("sums", {"recipeRef": {"kind": "RLRecipe", "name": "r"}}, {recipe_id(recipe): recipe}))


JOBS = [
    {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": spec}
    for spec, metadata in zip(SPECS, itertools.cycle(METADATA))
]


@settings(max_examples=max(EXAMPLES // 3, 30))
@given(documents=manifests([*JOBS, *RECIPES]))
def test_no_file_crashes(documents: list[Json]) -> None:
    try:
        files = collect([("job.yaml", document) for document in documents], "job.yaml")
    except UsageError:
        COUNTS["refused as a file"] += 1
        return
    for job_manifest in files.jobs:
        known = {recipe_id(recipe): recipe for recipe in RECIPES} | dict(files.recipes)
        checked = validate_document(job_manifest.document, known, launcher=LAUNCHER, accelerators=BUILT_IN)
        judge(checked, OUTSIDE)
        assert job_manifest.name or checked.spec is None
        assert job_manifest.namespace


@settings(max_examples=max(EXAMPLES // 3, 30))
@given(text=texts([*JOBS, *RECIPES]))
def test_no_text_crashes(text: str) -> None:
    try:
        read = load_all(text)
    except yaml.YAMLError:
        COUNTS["refused as YAML"] += 1
        return
    assert all(is_json(document) for document in read)


def judge(checked: Checked, also: re.Pattern[str] = FIELD) -> None:
    assert (checked.spec is None) == bool(checked.violations)
    for violation in checked.violations:
        assert FIELD.fullmatch(violation.field) or also.fullmatch(violation.field), violation
        assert violation.message
        if SPEC.match(violation.field):
            # Explain accepts what validate prints.
            assert isinstance(read_path(violation.field), tuple)
        COUNTS[re.sub(r"\[.*?\]", "[]", violation.field)] += 1
    COUNTS["accepted" if checked.spec else "refused"] += 1
    if checked.spec is None:
        return
    config = LAUNCHER(checked.spec).job_config(IDENTITY, checked.spec, 1)
    assert configmap.build_cluster_config(IDENTITY, checked.spec, 1, config)
    assert all(build_initializer(IDENTITY, checked.spec, entry) for entry in initializers(checked.spec))
    frozen = configmap.Snapshot(checked.spec, checked.recipes)
    assert configmap.read_snapshot(configmap.build_snapshot(IDENTITY, frozen, 1), BUILT_IN) == frozen


def is_json(value: Any) -> bool:  # noqa: ANN401 - JSON, or not
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False).encode()) == value)
    except ValueError:
        return False

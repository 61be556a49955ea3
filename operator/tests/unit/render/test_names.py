"""Names: deterministic, unique per incarnation of a job, and within the limits of Kubernetes and KubeRay."""

import re

from builders import IDENTITY
from hypothesis import given
from hypothesis import strategies as st

from rljob.api.forms import LABEL
from rljob.render import names
from rljob.render.metadata import canonical_json, child_metadata, digest
from rljob.render.names import JobIdentity

labels = st.from_regex(LABEL.pattern, fullmatch=True)
identities = st.builds(
    JobIdentity, namespace=st.just("team"), name=labels.filter(lambda name: len(name) <= 40), uid=st.uuids().map(str)
)


def test_children_are_named_by_job_and_uid() -> None:
    assert names.cluster_name(IDENTITY, 2) == "sums-0a1b2-2"
    assert names.submission_id("sums-0a1b2-2", 3) == "sums-0a1b2-2-3"
    assert names.snapshot_name(IDENTITY, 3) == "sums-0a1b2-spec-3"
    assert names.initializer_name(IDENTITY, "prepare") == "sums-0a1b2-prepare"


@given(identities, st.integers(1, 999_999), labels.filter(lambda name: len(name) <= 63))
def test_every_name_is_within_bounds(job: JobIdentity, generation: int, initializer: str) -> None:
    cluster, made = names.cluster_name(job, generation), names.initializer_name(job, initializer)
    assert len(cluster) <= 53
    assert re.fullmatch(LABEL.pattern, cluster)
    assert len(made) <= 63
    assert re.fullmatch(LABEL.pattern, made)


def test_long_initializers_of_one_beginning_have_names_of_their_own() -> None:
    made = {names.initializer_name(IDENTITY, "x" * 55 + end) for end in ("a", "b", "ab", "-c")}
    assert len(made) == 4


def test_a_recreated_job_never_meets_the_children_of_its_namesake() -> None:
    other = JobIdentity(IDENTITY.namespace, IDENTITY.name, "ffffffff-0000-4000-8000-000000000001")
    assert names.cluster_name(other, 1) != names.cluster_name(IDENTITY, 1)


def test_children_carry_owner_labels_and_intent() -> None:
    metadata = child_metadata(IDENTITY, "child", "cluster/1", {"extra": "mark"})
    (owner,) = metadata["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (IDENTITY.uid, True)
    assert metadata["labels"] == {"rljob.dev/job": "sums", "rljob.dev/job-uid": IDENTITY.uid, "extra": "mark"}
    assert metadata["annotations"]["rljob.dev/intent"] == f"{IDENTITY.uid}/cluster/1"


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert canonical_json({"b": "ü", "a": 1}) == '{"a":1,"b":"ü"}'
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})

"""No container that a user writes mounts a volume of the operator, however it is written."""

from __future__ import annotations

import pytest
from builders import Json, validate
from corpus.bad import Bad, head, merged, template, volume
from corpus.pods import SIDECAR, WORKERS, container, patch

DRIVER = {"name": "rljob-driver-0", "mountPath": "/node"}
NPU: Json = {"accelerator": {"class": "atlas-a3"}, "workerGroups": [{"name": "trainer", "devicesPerNode": 16}]}
REFUSED = {
    "the driver in a sidecar, writable and as root": Bad(
        merged(
            NPU, template({"sidecars": [SIDECAR | {"securityContext": {"runAsUser": 0}, "volumeMounts": [DRIVER]}]})
        ),
        f"{WORKERS}.sidecars[0].volumeMounts[0].name",
        "volume rljob-driver-0 belongs to the operator, which mounts it where it is needed; use a volume of your own",
    ),
    "the driver in the worker's container, by a patch": Bad(
        merged(NPU, container(volumeMounts=[{"name": "rljob-driver-1", "mountPath": "/x", "subPathExpr": "$(X)"}])),
        "spec.podSpecPatch.workers.containers[0].volumeMounts[0].name",
        "volume rljob-driver-1 belongs to the operator",
    ),
    "the spool in an init container of the head": Bad(
        head({"initContainers": [SIDECAR | {"volumeMounts": [{"name": "rljob-spool", "mountPath": "/spool"}]}]}),
        "spec.head.template.initContainers[0].volumeMounts[0].name",
        "volume rljob-spool belongs to the operator",
    ),
    "the injected runtime in the exporter, by a patch": Bad(
        patch(
            "head", containers=[{"name": "exporter", "volumeMounts": [{"name": "rljob-runtime", "mountPath": "/r"}]}]
        ),
        "spec.podSpecPatch.head.containers[0].volumeMounts[0].name",
        "volume rljob-runtime belongs to the operator",
    ),
}


@pytest.mark.parametrize("bad", REFUSED.values(), ids=REFUSED.keys())
def test_a_volume_of_the_operator_is_not_mounted(bad: Bad) -> None:
    checked = validate("sums", bad.spec)
    assert [violation.field for violation in checked.violations] == [bad.field]
    assert bad.message in checked.violations[0].message


def test_volumes_of_the_user_may_be_mounted() -> None:
    own = {"name": "data", "mountPath": "/data"}
    mine = merged(
        template(volume() | {"sidecars": [SIDECAR | {"volumeMounts": [own]}]}),
        container(volumeMounts=[own | {"mountPath": "/again"}]),
    )
    assert validate("sums", Bad(mine, "", "").spec).violations == ()


def test_what_is_no_list_of_mounts_is_left_to_other_checks() -> None:
    for mounts in (["rljob-spool", {"name": 1}], 1):
        odd = Bad(container(volumeMounts=mounts), "", "")
        assert not [v for v in validate("sums", odd.spec).violations if "belongs to the operator" in v.message]
    patched = Bad(patch(containers=["rljob-spool"]), "", "")
    assert not [v for v in validate("sums", patched.spec).violations if "which mounts it" in v.message]

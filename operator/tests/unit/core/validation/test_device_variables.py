"""No pod chooses its devices, by a variable or an annotation, wherever it is written."""

from __future__ import annotations

import pytest
from builders import validate
from corpus.bad import Bad, head, template
from corpus.pods import SIDECAR, WORKERS, container, service

DEVICES = {"name": "ASCEND_VISIBLE_DEVICES", "value": "0-15"}
REFUSED = {
    "on a class without NPUs": Bad(
        template({"env": [DEVICES]}), f"{WORKERS}.env[0]", "ASCEND_VISIBLE_DEVICES is set by"
    ),
    "folders of the node, in the head": Bad(
        head({"env": [{"name": "ASCEND_RUNTIME_MOUNTS", "value": "all"}]}),
        "spec.head.template.env[0]",
        "ASCEND_RUNTIME_MOUNTS is set by the device plug-in when the pod gets its devices; remove it",
    ),
    "in a sidecar": Bad(
        template({"sidecars": [SIDECAR | {"env": [{"name": "A", "value": "b"}, DEVICES]}]}),
        f"{WORKERS}.sidecars[0].env[1]",
        "ASCEND_VISIBLE_DEVICES is set by",
    ),
    "in a service": Bad(service(env=[DEVICES]), "spec.services[0].env[0]", "ASCEND_VISIBLE_DEVICES is set by"),
    "in an initializer": Bad(
        {"initializers": [{"name": "get", "command": ["x"], "env": [DEVICES]}]},
        "spec.initializers[0].env[0]",
        "ASCEND_VISIBLE_DEVICES is set by",
    ),
    "by a patch": Bad(
        container(env=[DEVICES]),
        "spec.podSpecPatch.workers.containers[0].env[0]",
        "ASCEND_VISIBLE_DEVICES is set by",
    ),
    "by an annotation that the device plug-in reads": Bad(
        template({"annotations": {"team": "a", "huawei.com/Ascend910": "Ascend910-0,Ascend910-1"}}),
        f"{WORKERS}.annotations[huawei.com/Ascend910]",
        "is set by the scheduler or the device plug-in when the pod gets its devices; remove it",
    ),
    "before others who wait": Bad(
        head({"annotations": {"predicate-time": "1"}}),
        "spec.head.template.annotations[predicate-time]",
        "is set by the scheduler or the device plug-in",
    ),
    "from a Secret": Bad(
        {"secretRefs": [{"name": "s", "items": [{"key": "k", "env": "ASCEND_ALLOW_LINK"}]}]},
        "spec.secretRefs[0].items[0].env",
        "ASCEND_ALLOW_LINK is set by",
    ),
}


@pytest.mark.parametrize("bad", REFUSED.values(), ids=REFUSED.keys())
def test_no_pod_chooses_its_devices(bad: Bad) -> None:
    checked = validate("sums", bad.spec)
    assert [violation.field for violation in checked.violations] == [bad.field]
    assert bad.message in checked.violations[0].message


def test_other_variables_and_odd_ones_are_left_to_other_checks() -> None:
    odd = Bad(template({"sidecars": [SIDECAR | {"env": ["ASCEND_VISIBLE_DEVICES", {}, {"name": "A"}]}]}), "", "")
    assert not [v for v in validate("sums", odd.spec).violations if "device plug-in" in v.message]

"""Pods and RayClusters of tenants in a namespace with limits: no way around the limits of their RLJobs.

The users may create pods and RayClusters, as authors of jobs may with `policies.authors: MayCreatePods`.
"""

from __future__ import annotations

import copy
import json

import pytest
from builders import Json, group, merged, small_spec
from contract.attacks import LIMITED, OPEN, User
from contract.conftest import KUBECONFIG
from contract.pod_security import pod_spec
from contract.policy_site import EDITOR, KUBERAY, OPERATOR, PLUGIN, SCHEDULER, Site, cluster, named, refuses, rljob
from contract.test_pod_security import cases, pod
from contract.test_policies import largest_job

from rljob.render.labels import JOB, JOB_UID

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
A3 = merged({"accelerator": {"class": "atlas-a3"}}, group({"nodes": 1, "devicesPerNode": 16}))
NPU = {"resources": {"limits": {"huawei.com/Ascend910": "16"}}}
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"


def raw(**fields: object) -> Json:
    """Return a pod with other fields of its spec."""
    return pod({"spec": merged(pod_spec(), fields)})


def one(**fields: object) -> Json:
    """Return a pod with other fields of its container."""
    return raw(containers=[{**pod_spec()["containers"][0], **fields}])


def pod_of(raycluster: Json, role: str) -> Json:
    """Return the pod that KubeRay creates of a group."""
    spec = raycluster["spec"]
    found = spec["headGroupSpec"] if role == "head" else spec["workerGroupSpecs"][0]
    return {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(found["template"])}


def foreign(site: Site, change: Json) -> Json:
    """Return a RayCluster like that of a job, which belongs to no job."""
    made = cluster(site, change)
    kept = {name: value for name, value in made["metadata"]["labels"].items() if name not in (JOB, JOB_UID)}
    made["metadata"] = {"labels": kept}
    # KubeRay leaves it to another cluster, so that none runs on this one.
    made["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    for part in (made["spec"]["headGroupSpec"], *made["spec"]["workerGroupSpecs"]):
        for mark in (JOB, JOB_UID):
            part["template"]["metadata"]["labels"].pop(mark, None)
    return made


BYPASSES: dict[str, tuple[Json, str]] = {
    "NPUs without a job": (one(**NPU), "the pod requests 16 NPUs"),
    "NPUs of an init container": (
        raw(initContainers=[{**pod_spec()["initContainers"][0], **NPU}]), "the pod requests 16 NPUs"
    ),
    "NPUs by their numbers": (
        one(env=[{"name": "ASCEND_VISIBLE_DEVICES", "value": "0-15"}]), "variables such as ASCEND_VISIBLE_DEVICES"
    ),
    "NPUs by a ConfigMap": (
        one(envFrom=[{"configMapRef": {"name": "npus"}}]), "may set ASCEND_VISIBLE_DEVICES, which takes NPUs"
    ),
    "NPUs by a Secret with a part of the name": (
        one(envFrom=[{"secretRef": {"name": "npus"}, "prefix": "ASCEND_"}]), "may set ASCEND_VISIBLE_DEVICES"
    ),
    "NPUs by an annotation": (
        raw() | {"metadata": {"annotations": {"huawei.com/Ascend910": "Ascend910-0"}}}, "choose the NPUs of a pod"
    ),
    "an image from elsewhere": (one(image="miner:1"), "the pod: image miner:1"),
    "a folder of the node": (raw(volumes=[{"name": "x", "hostPath": {"path": "/etc"}}]), "the pod: hostPath /etc"),
    "a folder of the node under the driver's name": (
        raw(volumes=[{"name": "rljob-driver-0", "hostPath": {"path": "/etc"}}]), "the pod: hostPath /etc"
    ),
    "the driver, writable": (
        one(volumeMounts=[{"name": "rljob-driver-0", "mountPath": "/usr/local/dcmi"}])
        | {"spec": merged(
            one(volumeMounts=[{"name": "rljob-driver-0", "mountPath": "/usr/local/dcmi"}])["spec"],
            {"volumes": [
                {"name": "rljob-driver-0", "hostPath": {"path": "/usr/local/dcmi", "type": "Directory"}}
            ]},
        )},
        "the pod: hostPath /usr/local/dcmi",
    ),
    "the driver, as a job has it": (
        raw(
            containers=[{
                **pod_spec()["containers"][0],
                "name": "ray-worker",
                "volumeMounts": [{"name": "rljob-driver-0", "mountPath": "/usr/local/dcmi", "readOnly": True}],
            }],
            volumes=[{"name": "rljob-driver-0", "hostPath": {"path": "/usr/local/dcmi", "type": "Directory"}}],
        ),
        "the pod: hostPath /usr/local/dcmi",
    ),
    "a node past its taints": (raw(nodeName="control-plane"), "the pod: nodeName bypasses the taints"),
    "nodes of the control plane": (raw(tolerations=[{"operator": "Exists"}]), "tolerations of every taint"),
    "an inline CSI volume": (raw(volumes=[{"name": "x", "csi": {"driver": "d.example"}}]), "volume x (csi)"),
    "devices by a claim": (
        raw(resourceClaims=[{"name": "npu", "resourceClaimName": "npus"}]), "resourceClaims and devices of a"
    ),
}  # fmt: skip


def test_no_pod_bypasses_the_limits_of_jobs(site: Site) -> None:
    pods = {key: made for key, (made, _) in BYPASSES.items()}
    # A Job, a Deployment or a StatefulSet leads to pods of a controller.
    for user in (User.AUTHOR, JOB_CONTROLLER):
        answers = site.refused(LIMITED, user, pods)
        for key, (_, said) in BYPASSES.items():
            assert refuses("tenants'", answers.get(key, "passed")), (key, answers.get(key))
            assert said in answers[key], key
    assert site.refused(OPEN, User.AUTHOR, pods) == {}
    void = [{"name": "ASCEND_VISIBLE_DEVICES", "value": "void"}]
    allowed = {
        "an allowed pod": raw(),
        "a pod that states that it has no devices": one(env=void, envFrom=[{"configMapRef": {"name": "npus"}}]),
        "variables with a prefix": one(envFrom=[{"configMapRef": {"name": "npus"}, "prefix": "APP_"}]),
    }
    assert site.refused(LIMITED, User.AUTHOR, allowed) == {}


def test_only_controllers_create_pods_with_the_labels_of_a_job(site: Site) -> None:
    for mark in ("rljob.dev/job", "rljob.dev/job-uid"):
        marked = {"": merged(raw(), {"metadata": {"labels": {mark: "a"}}})}
        for place in (LIMITED, OPEN):
            assert "only the controllers of RayClusters, Jobs" in site.refused(place, User.AUTHOR, marked)[""]
            assert site.refused(place, JOB_CONTROLLER, marked) == {}


def test_no_template_of_others_has_the_labels_of_a_job(site: Site) -> None:
    template = {"metadata": {"labels": {"app": "a", JOB_UID: "b"}}, "spec": pod_spec() | {"restartPolicy": "Always"}}
    workload = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    once = {"metadata": template["metadata"], "spec": pod_spec() | {"restartPolicy": "Never"}}
    schedule = {"schedule": "@daily", "jobTemplate": {"spec": {"template": once}}}
    ray = foreign(site, {})
    ray["spec"]["workerGroupSpecs"][0]["template"]["metadata"]["labels"][JOB_UID] = "b"
    tries = {
        "Deployment": {"apiVersion": "apps/v1", "kind": "Deployment", "spec": workload},
        "StatefulSet": {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": workload | {"serviceName": "a"}},
        "ReplicaSet": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": workload},
        "CronJob": {"apiVersion": "batch/v1", "kind": "CronJob", "spec": schedule},
    }
    for user, manifests in ((EDITOR, tries), (User.AUTHOR, {"RayCluster": ray})):
        answers = site.refused(OPEN, user, manifests)
        for kind in manifests:
            assert "only the operator may write them" in answers.get(kind, "passed"), (kind, answers.get(kind))
    # The controller of Deployments makes the ReplicaSets of a shared service.
    controller = "system:serviceaccount:kube-system:deployment-controller"
    assert site.refused(OPEN, controller, {"ReplicaSet": tries["ReplicaSet"]}) == {}


def test_pods_are_held_to_baseline(site: Site) -> None:
    for refused in (True, False):
        pods = {key: pod(template) for key, (change, template) in cases(refused=refused).items() if change.is_a_pod}
        assert set(site.refused(LIMITED, User.AUTHOR, pods)) == (set(pods) if refused else set())


NPUS = {"huawei.com/Ascend910": "16"}


def test_rayclusters_are_judged_like_their_pods(site: Site) -> None:
    def with_head(**fields: object) -> Json:
        made = foreign(site, {})
        for group_ in made["spec"]["workerGroupSpecs"]:
            group_["template"]["spec"]["containers"][0]["resources"] = {}
        made["spec"]["headGroupSpec"]["template"]["spec"].update(fields)
        return made

    autoscaled = with_head()
    autoscaled["spec"] |= {"enableInTreeAutoscaling": True, "autoscalerOptions": {"image": "miner:1"}}
    scaled = with_head()
    scaled["spec"] |= {"enableInTreeAutoscaling": True, "autoscalerOptions": {"resources": {"limits": NPUS}}}
    empty = foreign(site, A3)
    empty["spec"]["workerGroupSpecs"][0] |= {"replicas": 0, "minReplicas": 0}
    balanced = foreign(site, A3)
    (group_,) = balanced["spec"]["workerGroupSpecs"]
    balanced["spec"]["workerGroupSpecs"].append({**group_, "groupName": "other", "numOfHosts": -1})
    bypasses = {
        "a host's processes": (with_head(hostPID=True), "limits.rljob.dev/privileged"),
        "an image of the autoscaler": (autoscaled, "the RayCluster: image miner:1"),
        "NPUs of the autoscaler": (scaled, "the RayCluster requests 1 x 16 NPUs"),
        "NPUs": (foreign(site, A3), "the RayCluster requests 1 x 16 NPUs"),
        "NPUs for later": (empty, "the RayCluster requests 1 x 16 NPUs"),
        "NPUs minus as many": (balanced, "the RayCluster requests 1 x 16 + 1 x 16 NPUs"),
    }
    for user in (User.AUTHOR, KUBERAY):
        answers = site.refused(LIMITED, user, {key: made for key, (made, _) in bypasses.items()})
        for key, (_, said) in bypasses.items():
            assert said in answers.get(key, "passed"), key
    assert site.refused(OPEN, User.AUTHOR, {key: made for key, (made, _) in bypasses.items()}) == {}
    assert site.refused(LIMITED, User.AUTHOR, {"an allowed one": with_head()}) == {}


def test_kuberay_makes_nothing_for_a_user_that_the_user_may_not_make(site: Site) -> None:
    def exposed(**head: object) -> Json:
        made = foreign(site, {})
        for group_ in made["spec"]["workerGroupSpecs"]:
            group_["template"]["spec"]["containers"][0]["resources"] = {}
        made["spec"]["headGroupSpec"] |= head
        return made

    scaled = exposed()
    scaled["spec"]["enableInTreeAutoscaling"] = True
    addresses = {"apiVersion": "v1", "kind": "Service", "spec": {"externalIPs": ["192.0.2.1"]}}
    tries = {
        "a port of the nodes": (exposed(serviceType="NodePort"), "may not create Services"),
        "a load balancer": (exposed(serviceType="LoadBalancer"), "may not create Services"),
        "an address of others": (exposed(headService=addresses), "may not create Services"),
        "an ingress": (exposed(enableIngress=True), "(enableIngress)"),
        "a right to patch pods": (scaled, "(enableInTreeAutoscaling)"),
    }
    manifests = {key: made for key, (made, _) in tries.items()}
    # What KubeRay creates is of a RayJob, of whose author nothing is known.
    answers = site.refused(LIMITED, KUBERAY, manifests)
    assert {key: said in answers.get(key, "passed") for key, (_, said) in tries.items()} == dict.fromkeys(tries, True)
    # These authors may patch pods themselves.
    assert set(site.refused(LIMITED, User.AUTHOR, manifests)) == set(tries) - {"a right to patch pods"}
    assert site.refused(OPEN, User.AUTHOR, manifests) == {}
    assert site.refused(LIMITED, User.AUTHOR, {"a Service of the cluster": exposed(serviceType="ClusterIP")}) == {}


def test_the_pods_of_a_job_pass_as_kuberay_creates_them(site: Site) -> None:
    made = cluster(site, A3)
    pods = {role: pod_of(made, role) for role in ("head", "worker")}
    assert "rljob-driver-0" in json.dumps(pods["worker"])
    assert site.refused(LIMITED, KUBERAY, pods) == {}
    # Everybody else gets no NPUs by the same pod, and its labels belong to a job.
    refused = site.refused(LIMITED, User.AUTHOR, pods)
    assert "the pod requests 16 NPUs" in refused["worker"]
    assert "only the controllers of RayClusters, Jobs" in refused["head"]


def test_after_an_upgrade_pods_of_earlier_clusters_pass(site: Site) -> None:
    made = pod_of(cluster(site, {}), "head")
    image = "rljob.local/operator"
    earlier = {
        key: merged(made, {"spec": {"initContainers": [{"name": "rljob-runtime", "image": f"{image}{tag}"}]}})
        for key, tag in {
            "a tag": ":0.0.9",
            "a digest": f"@sha256:{'0' * 64}",
            "no image of ours": ":5000/miner",
        }.items()
    }
    assert set(site.refused(LIMITED, KUBERAY, earlier)) == {"no image of ours"}


def test_the_largest_cluster_is_not_too_much_to_look_at(site: Site) -> None:
    made = foreign(site, largest_job())
    for found in made["spec"]["workerGroupSpecs"]:
        found["template"]["spec"]["containers"][0]["resources"] = {}
    objects = {"a RayCluster": made} | {role: pod_of(made, role) for role in ("head", "worker")}
    assert len(json.dumps(made)) > 75_000
    assert site.refused(LIMITED, KUBERAY, objects) == {}


def test_a_raycluster_of_a_job_changes_only_within_its_cards(site: Site) -> None:
    where = ("-n", site.namespace(LIMITED))
    # Without its job the garbage collector deletes it at once.
    site.do("create", *where, "-f", "-", body=named(rljob(small_spec({"suspend": True})), "sums"))
    made = foreign(site, A3)
    (owner,) = cluster(site, A3)["metadata"]["ownerReferences"]
    uid = site.do("get", "rljob", "sums", *where, "-o", "jsonpath={.metadata.uid}")
    made["metadata"]["ownerReferences"] = [owner | {"uid": uid}]
    site.do("create", *where, "-f", "-", user=OPERATOR, body=named(made, "of-a-job"))

    def change(user: str, *operations: Json) -> str:
        words = ("patch", "raycluster", "of-a-job", *where, "--type=json", "--dry-run=server", "-p")
        return site.ask(*words, json.dumps(list(operations)), user=user).stderr

    worker = "/spec/workerGroupSpecs/0"
    more = {"op": "replace", "path": f"{worker}/replicas", "value": 2}
    template = f"{worker}/template/spec"
    assert "requests 2 x 16 NPUs instead of 1 x 16" in change(
        User.AUTHOR, more, {**more, "path": f"{worker}/maxReplicas"}
    )
    hosts = {"op": "replace", "path": f"{worker}/numOfHosts", "value": 4}
    assert "requests 4 x 16 NPUs instead of 1 x 16" in change(KUBERAY, hosts)
    limits = f"{template}/containers/0/resources"
    fewer = [
        {"op": "replace", "path": f"{limits}/{kind}/huawei.com~1Ascend910", "value": "1"}
        for kind in ("limits", "requests")
    ]
    assert "requests 2 x 1 NPUs instead of 1 x 16" in change(User.AUTHOR, more, *fewer)
    image = {"op": "replace", "path": f"{template}/containers/0/image", "value": "miner:1"}
    assert "the RayCluster: image miner:1" in change(User.AUTHOR, image)
    # Kueue admits a workload and places its pods; others mark it.
    admitted = (
        {"op": "add", "path": "/spec/suspend", "value": False},
        {"op": "add", "path": f"{template}/nodeSelector", "value": {"rack": "a"}},
        {"op": "add", "path": f"{template}/tolerations", "value": [{"key": "flavor", "operator": "Exists"}]},
        {"op": "add", "path": "/metadata/labels/seen", "value": "yes"},
    )
    assert change(KUBERAY, *admitted) == ""
    # A newer limit does not hold what exists.
    newer = ("annotate", "namespace", site.namespace(LIMITED), "--overwrite")
    try:
        site.do(*newer, "limits.rljob.dev/images=nowhere.example")
        assert change(KUBERAY, *admitted) == ""
        assert "the RayCluster: image" in change(User.AUTHOR, {**image, "value": "registry.example/rljob/x:2"})
    finally:
        site.do(*newer, "limits.rljob.dev/images=registry.example/rljob, docker.io/library/python")


def test_a_pod_gets_nothing_later_that_it_could_not_have_at_first(site: Site) -> None:
    where = ("-n", site.namespace(LIMITED))
    # A gate keeps it from running.
    site.do("create", *where, "-f", "-", user=User.AUTHOR, body=named(raw(schedulingGates=[{"name": "a/b"}]), "kept"))
    stored = json.loads(site.do("get", "pod", "kept", *where, "-o", "json"))

    def put(change: Json, subresource: str = "") -> str:
        path = f"/api/v1/namespaces/{site.namespace(LIMITED)}/pods/kept{subresource}?dryRun=All"
        body = {
            **stored,
            "spec": {**stored["spec"], **change},
            "metadata": {**stored["metadata"], "labels": {"a": "b"}},
        }
        return site.ask("replace", "--raw", path, "-f", "-", user=User.AUTHOR, body=body).stderr

    (container,) = stored["spec"]["containers"]
    assert "the pod: image miner:1" in put({"containers": [{**container, "image": "miner:1"}]})
    every = [*stored["spec"].get("tolerations", []), {"operator": "Exists"}]
    assert "tolerations of every taint" in put({"tolerations": every})
    debug = {
        "name": "debug",
        "image": container["image"],
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    added = {**debug, "securityContext": {"privileged": True}}
    assert "container debug: securityContext.privileged" in put(
        {"ephemeralContainers": [added]}, "/ephemeralcontainers"
    )
    assert "image miner:1" in put({"ephemeralContainers": [{**debug, "image": "miner:1"}]}, "/ephemeralcontainers")
    assert put({"ephemeralContainers": [debug]}, "/ephemeralcontainers") == ""
    assert put({}) == ""


def test_only_schedulers_and_device_plugins_choose_the_npus_of_a_pod(site: Site) -> None:
    where = ("-n", site.namespace(LIMITED))
    waiting = named(raw(schedulingGates=[{"name": "a/b"}]), "waiting")
    site.do("create", *where, "-f", "-", user=User.AUTHOR, body=waiting)

    def mark(user: str, annotations: Json) -> str:
        patch = json.dumps({"metadata": {"annotations": annotations}})
        return site.ask("patch", "pod", "waiting", *where, "--dry-run=server", "-p", patch, user=user).stderr

    for chosen in ({"huawei.com/Ascend910": "Ascend910-0"}, {"predicate-time": "1"}):
        assert "author is neither a scheduler nor a device plug-in" in mark(User.AUTHOR, chosen)
        assert mark(SCHEDULER, chosen) == ""
        assert mark(PLUGIN, chosen) == ""
    assert mark(User.AUTHOR, {"team": "a"}) == ""

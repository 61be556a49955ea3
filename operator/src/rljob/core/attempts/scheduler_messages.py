"""What kube-scheduler's message about a pod without a node means. Pure.

The scheduler gives one reason per node; reasons that are not in the tables are quoted.
"""

from __future__ import annotations

import re

_REASON = re.compile(r"(?:^|, )(\d+) ((?:[^,{]|\{[^}]*\})+)")
REASONS: tuple[tuple[str, str], ...] = (
    (r"Insufficient (\S+)", "{count} with too little {0} free"),
    (
        r"node\(s\) had untolerated taint(?:\(s\))?(?: (\{[^}]*\}))?",
        "{count} with an untolerated taint {0}",
    ),
    (
        r"node\(s\) didn't (?:match|satisfy) [Pp]od's node affinity",
        "{count} of another class, or without a required label",
    ),
    (r"node\(s\) were unschedulable", "{count} cordoned"),
    (r"node\(s\) had volume node affinity conflict", "{count} that cannot mount one of its volumes"),
    (r"node\(s\) didn't match pod affinity", "{count} outside of the domain of its other pods"),
    (r"node\(s\) didn't match pod anti-affinity", "{count} with a pod that it must not share a node with"),
    (r"node\(s\) didn't have free ports", "{count} where one of its ports is in use"),
)
"""Messages of kube-scheduler's plug-ins (kubernetes v1.36.2, pkg/scheduler/framework/plugins), and their meaning."""
CLAIMS: tuple[tuple[str, str], ...] = (
    (
        r'persistentvolumeclaim "([^"]+)" not found',
        "the PersistentVolumeClaim {0} does not exist in the namespace; create it, or correct volumes in the template",
    ),
    (
        r'persistentvolumeclaim "([^"]+)" is being deleted',
        "the PersistentVolumeClaim {0} is being deleted; create a claim, or name another one in the RLJob",
    ),
    (
        r'persistentvolumeclaim "([^"]+)" bound to non-existent persistentvolume "([^"]+)"',
        "the volume {1} of the PersistentVolumeClaim {0} no longer exists; create a claim with a new volume",
    ),
    (
        r"pod has unbound immediate PersistentVolumeClaims",
        "a PersistentVolumeClaim of the pod has no volume; `kubectl get pvc` shows which, `kubectl describe pvc` why",
    ),
)
"""Messages about all nodes (volumebinding/volume_binding.go, podHasPVCs and PreFilter), and what to do."""


def explained(said: str) -> str:
    """Return `0/12 nodes are available: 3 Insufficient …, 9 node(s) …` in plain words; unknown reasons are quoted."""
    plain = " ".join(said.split())
    head, colon, rest = plain.partition(" nodes are available: ")
    about_claim = _about_claim(rest if colon else plain)
    if about_claim:
        return about_claim
    if not colon:
        return f"the scheduler reports: {plain.rstrip('.') or 'no reason'}"
    # The rest describes preemption and resource claims, which did not help, or there would be no message.
    reasons = re.split(r"\. |,? preemption: ", rest)[0].rstrip(".")
    translated = [_translate(count, reason) for count, reason in _REASON.findall(reasons)]
    detail = "; ".join(translated) if translated else reasons
    return f"none of {head.rpartition('/')[2]} nodes can run it: {detail}"


def _about_claim(reason: str) -> str:
    """Return what is wrong with a claim of the pod, which is the same for all nodes; empty if nothing is."""
    for pattern, text in CLAIMS:
        if found := re.match(pattern, reason):
            return text.format(*found.groups())
    return ""


def _translate(count: str, reason: str) -> str:
    for pattern, text in REASONS:
        if found := re.match(pattern, reason):
            return text.format(*(group or "" for group in found.groups()), count=count).strip()
    return f"{count} {reason}".strip()

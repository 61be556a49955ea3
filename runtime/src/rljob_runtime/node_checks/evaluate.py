"""Evaluate the facts of all nodes: what is wrong with which node, and whether another attempt can help.

Pure. If a check fails on every node and its cause may be in the manifest or the image (a path, the size of /dev/shm,
the model), no attempt can succeed: exit 64. Otherwise the environment is at fault: exit 65, with the nodes named so
that the operator can avoid them. Warnings do not end the run.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rljob_runtime.contract import ExitCode, JobConfig, Platform
from rljob_runtime.node_checks import versions
from rljob_runtime.node_checks.facts import NodeFacts
from rljob_runtime.node_checks.model_files import MISSING
from rljob_runtime.outcomes import DISK_FULL, RefusedError

CLOCK_SECONDS_MAX, CLOCK_SECONDS_WARN = 60.0, 5.0
"""Tokens and certificates fail with a difference of more than a minute; a few seconds already make logs hard to
merge."""
OPEN_FILES_MIN, OPEN_FILES_WANTED = 32768, 65536
"""verl's guide for Ascend sets 32768, KubeRay's pods 65536."""
FREE_BYTES_MIN, FREE_BYTES_WANTED = 1 << 30, 10 << 30
"""Space for Ray's logs, sockets and spilled objects."""
SHARED_MEMORY_SLACK = 0.99
NAMED_MAX = 4


class Check(enum.StrEnum):
    """Rows of the table, with the reason of a refusal and whether the manifest or the image can be the cause."""

    reason: str
    by_manifest: bool

    def __new__(cls, title: str, reason: str, by_manifest: bool) -> Self:  # noqa: FBT001 - a table's column
        """Create a member."""
        member = str.__new__(cls, title)
        member._value_ = title
        member.reason, member.by_manifest = reason, by_manifest
        return member

    ANSWER = ("answers", "NodeSilent", False)
    DRIVER = ("driver tools", "DriverNotMounted", True)
    DRIVER_ANSWER = ("driver", "DriverSilent", False)
    DEVICES = ("devices", "DevicesMissing", False)
    HEALTH = ("health", "DeviceUnhealthy", False)
    CHIP = ("chip", "WrongChip", True)
    VERSIONS = ("driver versions", "DriverTooOld", False)
    IMAGE = ("image versions", "ImageMismatch", True)
    LINKS = ("device links", "LinkDown", False)
    ADDRESSES = ("device addresses", "DeviceAddress", False)
    PORTS = ("ports", "PortsBusy", False)
    INTERFACE = ("interface", "InterfaceMissing", False)
    SHARED_MEMORY = ("/dev/shm", "SharedMemoryTooSmall", True)  # noqa: S108 - the mount itself
    OPEN_FILES = ("open files", "OpenFilesTooFew", False)
    DISK = ("disk", DISK_FULL, False)
    CLOCK = ("clock", "ClockSkew", False)
    PATHS = ("paths", "PathMissing", True)
    FOLDERS = ("shared folders", "FolderNotShared", True)
    MODEL = ("model files", "ModelIncomplete", True)
    CPUS = ("cpuset", "CpusetTooSmall", True)


@dataclass(frozen=True)
class Finding:
    """A problem of a node."""

    check: Check
    node: str
    message: str
    device: int | None = None
    fatal: bool = True
    is_node: bool = True
    """Whether `node` is the name of a Kubernetes node, which the operator can avoid."""

    def describe(self) -> str:
        """Return the finding as text."""
        place = self.node if self.device is None else f"{self.node}, NPU {self.device}"
        return f"{place}: {self.message}"


@dataclass(frozen=True)
class Unresponsive:
    """A node that did not answer in time."""

    name: str
    is_node: bool = True
    """Whether `name` is the name of the Kubernetes node, not only that of its pod."""


@dataclass(frozen=True)
class Window:
    """When the head sent its requests and when it had all answers, by its own clock."""

    asked: float
    answered: float


Found = Iterator[Finding]


def evaluate(
    job: JobConfig, facts: Sequence[NodeFacts], window: Window, silent: Sequence[Unresponsive] = ()
) -> list[Finding]:
    """Evaluate every node and return the findings, fatal ones first."""
    late = "did not answer the check in time"
    findings = [Finding(Check.ANSWER, node.name, late, is_node=node.is_node) for node in silent]
    head = next((node for node in facts if node.is_head), None)
    for node in facts:
        findings += _everywhere(job, node, head, window)
        if not node.is_head:
            findings += _worker(job, node)
            if job.platform is Platform.NPU:
                findings += _npus(job, node)
    findings += _addresses(job, facts)
    order = list(Check)
    return sorted(findings, key=lambda found: (not found.fatal, order.index(found.check), found.node))


def refuse(job: JobConfig, facts: Sequence[NodeFacts], findings: Sequence[Finding]) -> None:
    """Raise RefusedError if a finding is fatal."""
    fatal = [found for found in findings if found.fatal]
    if not fatal:
        return
    everywhere = [found for found in fatal if found.check.by_manifest and _on_all(found.check, fatal, facts)]
    if everywhere:
        check = everywhere[0].check
        same = [found for found in everywhere if found.check is check]
        raise RefusedError(ExitCode.BAD_CONFIG, check.reason, _everywhere_message(job, same, facts))
    counted = Counter(found.node for found in fatal if found.is_node)
    nodes = tuple(node for node, _ in counted.most_common())
    shown = "; ".join(found.describe() for found in fatal[:NAMED_MAX])
    more = f"; and {len(fatal) - NAMED_MAX} more" if len(fatal) > NAMED_MAX else ""
    raise RefusedError(ExitCode.ENVIRONMENT, fatal[0].check.reason, shown + more, nodes)


def _on_all(check: Check, fatal: Sequence[Finding], facts: Sequence[NodeFacts]) -> bool:
    """Return whether a check fails on every worker node of a role. The head's answer then adds nothing."""
    failing = {found.node for found in fatal if found.check is check}
    roles = {node.role for node in facts if not node.is_head}
    return any({node.node for node in facts if not node.is_head and node.role is role} <= failing for role in roles)


def _everywhere_message(job: JobConfig, same: Sequence[Finding], facts: Sequence[NodeFacts]) -> str:
    if same[0].check is Check.PATHS:
        lacking = [set(node.missing_paths) for node in facts if not node.is_head and node.missing_paths]
        nowhere = set.intersection(*lacking)
        named = ", ".join(f"{r.field}: {r.path}" for r in job.required_paths if r.path in nowhere)
        if named:
            return f"{named} does not exist in any pod; check the path and the volume that should hold it"
    return f"on every node: {same[0].message}"


def _everywhere(job: JobConfig, node: NodeFacts, head: NodeFacts | None, window: Window) -> Found:
    """Check what applies to head and workers."""
    missing = [required for required in job.required_paths if required.path in node.missing_paths]
    if missing:
        named = ", ".join(f"{required.field}: {required.path}" for required in missing)
        yield Finding(Check.PATHS, node.node, f"{named} is missing here; check the volume's mount on this node")
    for path, why in node.unshared.items():
        yield Finding(Check.FOLDERS, node.node, f"{path}: {why}; every pod must mount the same volume there")
    yield from _model(node, head)
    if node.interface_error:
        # The head holds no device, so no collective uses its interfaces, which may differ from the workers'.
        message = f"{node.interface_error}; see network.hccl.socketInterface"
        yield Finding(Check.INTERFACE, node.node, message, fatal=not node.is_head)
    skew = max(window.asked - node.time, node.time - window.answered, 0.0)
    if skew > CLOCK_SECONDS_WARN:
        message = f"its clock differs by {skew:.0f} s from the head's; synchronise the node's time"
        yield Finding(Check.CLOCK, node.node, message, fatal=skew > CLOCK_SECONDS_MAX)


def _model(node: NodeFacts, head: NodeFacts | None) -> Found:
    if node.model is None:
        return
    missing = [name for name, size in node.model.sizes.items() if size == MISSING]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"model weights are missing: {missing[0]}{more}; download the model again"
        yield Finding(Check.MODEL, node.node, message)
    for problem in node.model.problems[:1]:
        yield Finding(Check.MODEL, node.node, f"{problem}: the model is incomplete; download it again")
    if head is None or node.is_head or head.model is None:
        return
    for problem in head.model.problems[:1]:
        # Only the head reads headers. A node whose files have the same sizes has the same problem.
        if node.model.sizes == head.model.sizes:
            yield Finding(Check.MODEL, node.node, f"{problem}: the model is incomplete; download it again")
    differing = [
        name
        for name, size in node.model.sizes.items()
        if MISSING not in (size, head.model.sizes.get(name, size)) and size != head.model.sizes.get(name, size)
    ]
    if differing:
        sizes = f"{node.model.sizes[differing[0]]} bytes here and {head.model.sizes[differing[0]]} on the head"
        yield Finding(Check.MODEL, node.node, f"{differing[0]} has {sizes}; use the same copy of the model everywhere")


def _worker(job: JobConfig, node: NodeFacts) -> Found:
    """Check a worker node's resources. Without NPUs, low values are only warnings."""
    npu, needs = job.platform is Platform.NPU, job.needs
    if node.busy_ports:
        listed = ", ".join(map(str, node.busy_ports[:NAMED_MAX]))
        message = f"HCCL port {listed} is in use on this host's network; stop the process that uses it"
        yield Finding(Check.PORTS, node.node, message)
    size, wanted = node.shared_memory_bytes, needs.shared_memory_bytes
    if size is not None and wanted is not None and size < wanted * SHARED_MEMORY_SLACK:
        message = f"shared memory has {gib(size)}, but workerGroups[].template.sharedMemory is {gib(wanted)}"
        yield Finding(Check.SHARED_MEMORY, node.node, message)
    if node.open_files is not None and node.open_files < OPEN_FILES_WANTED:
        message = f"a process may open {node.open_files} files (ulimit -n); raise the container runtime's limit"
        yield Finding(Check.OPEN_FILES, node.node, message, fatal=npu and node.open_files < OPEN_FILES_MIN)
    if node.free_bytes is not None and node.free_bytes < FREE_BYTES_WANTED:
        message = f"{gib(node.free_bytes)} are free for temporary files; free some, because Ray stops on a full disk"
        yield Finding(Check.DISK, node.node, message, fatal=node.free_bytes < FREE_BYTES_MIN)
    if needs.cpus is not None and node.cpus < needs.cpus:
        message = f"the cpuset has {node.cpus} CPUs, but workerGroups[].template.cpu requests {needs.cpus}"
        yield Finding(Check.CPUS, node.node, message, fatal=npu)


def _npus(job: JobConfig, node: NodeFacts) -> Found:
    per_node = job.devices_per_node
    if node.devices is None and not node.tools_missing:
        message = f"{node.devices_error}; check the node's driver (dmesg, /var/log/npu)"
        yield Finding(Check.DRIVER_ANSWER, node.node, message)
        return
    if node.devices is None:
        message = f"{node.devices_error}; the driver's tools must be mounted (accelerator class, runtimeClassName)"
        yield Finding(Check.DRIVER, node.node, message)
        return
    if len(node.devices) < per_node:
        gone = sorted(set(range(per_node)) - {device.logical for device in node.devices})
        message = f"npu-smi lists {len(node.devices)} of {per_node} devices; missing: {', '.join(map(str, gone))}"
        yield Finding(Check.DEVICES, node.node, message, gone[0] if gone else None)
    for device in node.devices:
        if device.health.upper() != "OK":
            message = f"health is {device.health} (card {device.card}, chip {device.chip}, {device.bus})"
            fatal = device.health.upper() != "WARNING"
            yield Finding(Check.HEALTH, node.node, message, device.logical, fatal)
    chips = job.needs.chips
    wrong = [device for device in node.devices if chips and not device.name.startswith(chips)]
    if wrong:
        message = f"{wrong[0].name} is not a device of this accelerator class ({', '.join(chips)})"
        yield Finding(Check.CHIP, node.node, message, wrong[0].logical)
    yield from _versions(job, node)
    yield from _links(job, node)


def _versions(job: JobConfig, node: NodeFacts) -> Found:
    wanted = versions.minimums(node.versions) | {
        entry.part: (entry.version, "the accelerator class") for entry in job.needs.versions
    }
    for part, (minimum, why) in sorted(wanted.items()):
        seen = node.versions.get(part)
        check = Check.VERSIONS if part in ("driver", "firmware") else Check.IMAGE
        if seen is None:
            yield Finding(check, node.node, f"cannot read the release of {part}; {why} needs {minimum}", fatal=False)
        elif versions.older(seen, minimum):
            fix = (
                "upgrade the node's driver package"
                if check is Check.VERSIONS
                else "use an image with matching versions"
            )
            message = f"{part} {seen} is older than {minimum}, which {why} needs; {fix}"
            # The table names tested drivers, but CANN's vendor allows older ones. The minimum of a class is strict.
            advice = check is Check.VERSIONS and part not in {entry.part for entry in job.needs.versions}
            yield Finding(check, node.node, message, fatal=not advice)


def _links(job: JobConfig, node: NodeFacts) -> Found:
    """Check the devices' own network ports. A run on one node does not need them."""
    several = job.nodes > 1
    if node.links_error and several:
        message = f"{node.links_error}: the devices' network ports are not checked (driver/tools is not mounted)"
        yield Finding(Check.LINKS, node.node, message, fatal=False)
    for device, link in sorted(node.links.items()):
        if link != "UP":
            message = f"its network port is {link} (hccn_tool -i {device} -link -g)"
            yield Finding(Check.LINKS, node.node, message, device, fatal=_by_ports(job))
    for device, why in sorted(node.unasked.items()) if several else ():
        yield Finding(Check.LINKS, node.node, f"its network port is not checked: {why}", device, fatal=False)
    for device, address in sorted(node.addresses.items()):
        if address is None:
            message = f"its network port has no address (hccn_tool -i {device} -ip -g, /etc/hccn.conf)"
            yield Finding(Check.ADDRESSES, node.node, message, device, fatal=_by_ports(job))


def _by_ports(job: JobConfig) -> bool:
    """Return whether nodes communicate only through the devices' own ports. Dies of a SuperPoD also have its links."""
    return job.nodes > 1 and job.dies_per_card == 1


def _addresses(job: JobConfig, facts: Sequence[NodeFacts]) -> Found:
    """Find addresses that several devices share."""
    owners: dict[str, list[tuple[str, int]]] = {}
    for node in facts:
        for device, address in node.addresses.items():
            if address is not None:
                owners.setdefault(address, []).append((node.node, device))
    for address, those in sorted(owners.items()):
        for name, device in those if len(those) > 1 else ():
            others = ", ".join(f"{other} NPU {number}" for other, number in those if (other, number) != (name, device))
            message = f"its network port has the address {address}, as do {others}"
            yield Finding(Check.ADDRESSES, name, message, device, fatal=_by_ports(job))


def gib(size: int) -> str:
    """Format a number of bytes in GiB."""
    return f"{size / (1 << 30):.1f} GiB"

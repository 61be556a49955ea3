"""Build the table of the node checks: for the driver's log and, limited in size, for `/v1/progress`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rljob_runtime.contract import CheckResult, CoreBinding, JobConfig, NodeFinding, Platform, Preflight
from rljob_runtime.node_checks.evaluate import Check, Finding, gib
from rljob_runtime.node_checks.facts import NodeFacts

FINDINGS_MAX = 32
PLANS_MAX = 8
TEXT_MAX = 600
NPU_ONLY = (
    Check.DRIVER,
    Check.DRIVER_ANSWER,
    Check.DEVICES,
    Check.HEALTH,
    Check.CHIP,
    Check.VERSIONS,
    Check.IMAGE,
    Check.LINKS,
    Check.ADDRESSES,
)


def preflight(job: JobConfig, facts: Sequence[NodeFacts], findings: Sequence[Finding], seconds: float) -> Preflight:
    """Return the table."""
    silent = {found.node for found in findings if found.check is Check.ANSWER}
    names = {node.node for node in facts} | silent
    rows = [check for check in Check if job.platform is Platform.NPU or check not in NPU_ONLY]
    return Preflight(
        nodes=len(names),
        seconds=round(seconds, 1),
        checks=tuple(_row(check, facts, findings, len(names)) for check in rows),
        findings=tuple(
            NodeFinding(found.check.value, found.node, _cut(found.message), found.device, found.fatal)
            for found in findings[:FINDINGS_MAX]
        ),
    )


def _row(check: Check, facts: Sequence[NodeFacts], findings: Sequence[Finding], nodes: int) -> CheckResult:
    own = [found for found in findings if found.check is check]
    failed = {found.node for found in own if found.fatal}
    warned = {found.node for found in own} - failed
    return CheckResult(
        check=check.value,
        passed=nodes - len(failed) - len(warned),
        failed=len(failed),
        warned=len(warned),
        seen=_cut(own[0].describe() if own else _seen(check, facts)),
    )


def _seen(check: Check, facts: Sequence[NodeFacts]) -> str:
    """Return what a check observed on all worker nodes together."""
    return SEEN[check]([node for node in facts if not node.is_head]) if check in SEEN else ""


def text(table: Preflight) -> str:
    """Format the table and all findings for the log."""
    title = f"{table.nodes} nodes checked in {table.seconds:g} s"
    lines = [title, f"  {'check':<17} {'ok':>4} {'bad':>4} {'warn':>4}  seen"]
    lines += [
        f"  {row.check:<17} {row.passed:>4} {row.failed or '-':>4} {row.warned or '-':>4}  {row.seen}".rstrip()
        for row in table.checks
    ]
    for found in table.findings:
        device = "" if found.device is None else f", NPU {found.device}"
        word = "FAILED" if found.fatal else "warning"
        lines.append(f"  {word}: {found.check}: {found.node}{device}: {found.message}")
    return "\n".join(lines)


def core_binding(facts: Sequence[NodeFacts]) -> CoreBinding:
    """Return the planned binding. Nodes with the same plan are grouped."""
    workers = [node for node in facts if not node.is_head]
    plans: dict[str, list[str]] = {}
    notes: dict[str, list[str]] = {}
    for node in workers:
        if node.plan is not None:
            plans.setdefault(node.plan, []).append(node.node)
        for note in node.plan_notes:
            notes.setdefault(note, []).append(node.node)
    return CoreBinding(
        nodes=len(workers),
        planned_nodes=sum(node.plan is not None for node in workers),
        plans=tuple(_cut(f"{_names(those)}: {plan}") for plan, those in list(plans.items())[:PLANS_MAX]),
        notes=tuple(_cut(f"{_names(those)}: {note}") for note, those in list(notes.items())[:PLANS_MAX]),
    )


def _names(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:3])
    return shown if len(nodes) <= 3 else f"{shown} and {len(nodes) - 3} more"


def _cut(line: str) -> str:
    return line if len(line) <= TEXT_MAX else f"{line[: TEXT_MAX - 4]} ..."


def _devices(workers: Sequence[NodeFacts]) -> str:
    names = sorted({device.name for node in workers for device in node.devices or ()})
    return " ".join([_span({len(node.devices) for node in workers if node.devices is not None}), *names])


def _releases(*parts: str) -> Callable[[Sequence[NodeFacts]], str]:
    def describe(workers: Sequence[NodeFacts]) -> str:
        found = {part: sorted({node.versions[part] for node in workers if part in node.versions}) for part in parts}
        return ", ".join(f"{part} {' '.join(releases)}" for part, releases in found.items() if releases)

    return describe


def _links(workers: Sequence[NodeFacts]) -> str:
    states = [link for node in workers for link in node.links.values()]
    return f"{states.count('UP')} of {len(states)} up" if states else ""


def _files(workers: Sequence[NodeFacts]) -> str:
    count = max((len(node.model.sizes) for node in workers if node.model), default=0)
    return f"{count} files" if count else ""


def _span(values: Iterable[int | None]) -> str:
    known = sorted({value for value in values if value is not None})
    return "" if not known else str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"


def _bytes(values: Iterable[int | None]) -> str:
    known = [value for value in values if value is not None]
    ends = sorted({gib(min(known)), gib(max(known))}) if known else []
    return " to ".join(ends)


SEEN: Mapping[Check, Callable[[Sequence[NodeFacts]], str]] = {
    Check.DEVICES: _devices,
    Check.VERSIONS: _releases("driver", "firmware"),
    Check.IMAGE: _releases("cann", "torch_npu"),
    Check.LINKS: _links,
    Check.INTERFACE: lambda workers: " ".join(sorted({node.interface for node in workers if node.interface})),
    Check.SHARED_MEMORY: lambda workers: _bytes(node.shared_memory_bytes for node in workers),
    Check.OPEN_FILES: lambda workers: _span(node.open_files for node in workers),
    Check.DISK: lambda workers: _bytes(node.free_bytes for node in workers),
    Check.MODEL: _files,
    Check.CPUS: lambda workers: _span(node.cpus for node in workers),
}
"""What a row shows if no node failed."""

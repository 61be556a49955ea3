"""The generated page on accelerator classes: every value with its source, variables, ports of the node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rljob.api.accelerators import AcceleratorFacts
from rljob.core.scheduling.port_blocks import BLOCKS, FIRST_PORT
from rljob.render.accelerators import VENDOR_RESOURCES, built_in_document
from rljob.render.env import VARIABLES
from rljob.render.ports import ANY_PORT, BLOCK_SIZE, PORTS
from scripts.reference import HEADER, table

INTRODUCTION = """\
`spec.accelerator.class` refers to one of these rows, which sets what a specialist would otherwise set by hand: the
resource, whole nodes, cores per device, the driver, labels for the schedulers, variables. The chart value
`accelerators` changes a row or adds one; `rljob validate --accelerators FILE` reads the same file, or the operator's
ConfigMap.
"""
FIELDS = "Fields that a row does not set have no effect: nothing is set, mounted or requested.\n"
VENDORS = "Resource names that device plug-ins use for whole devices. Slices (vNPU) are rejected.\n"
ENVIRONMENT = """\
Set on head and workers alike, because actors inherit from the raylet of their node. The template's `env` takes
precedence, and the condition `Validated` reports what it overrides. Unless the class is stated, only on NPU classes.
"""
NETWORK = f"""\
With `network.mode: Host` each job has {BLOCK_SIZE} ports of its own, starting at {FIRST_PORT} (`hostPorts` of the
chart, by default {BLOCKS} blocks); `status.network.portBlock` is the first of them. Workers of Ray, HCCL and vLLM use
ports that the operating system chooses (`{"`, `".join(f"{name} {value}" for name, value in ANY_PORT.items())}`,
`auto`). On the pods' own network the defaults of Ray and KubeRay apply. Requires KubeRay 1.6: version 1.5 probes fixed
ports.
"""


def accelerators_page() -> str:
    """Return the page on accelerator classes."""
    parts = [HEADER, "# Accelerator classes\n", INTRODUCTION]
    for name, row in built_in_document().items():
        parts += [f"## {name}\n", f"{row['description']}.\n", table(("field", "value", "source"), list(_rows(row)))]
    vendors = [(f"`{name}`", source) for name, source in VENDOR_RESOURCES.items()]
    variables = [(f"`{row.name}`", ", ".join(row.platforms), row.source) for row in VARIABLES]
    ports = [
        (row.role.value, f"`{row.flag or row.container_port}`", f"+{row.place}", str(row.default or "any"), row.source)
        for row in PORTS
    ]
    fields = [
        (f"`{info.alias or name}`", str(info.description)) for name, info in AcceleratorFacts.model_fields.items()
    ]
    parts += ["## Fields of a row\n", FIELDS, table(("field", "meaning"), fields)]
    parts += ["## Names of resources\n", VENDORS, table(("resource", "device plug-in"), vendors)]
    parts += [
        "## Environment variables of the pods\n",
        ENVIRONMENT,
        table(("variable", "platform", "source"), variables),
    ]
    parts += ["## Ports on the node's network\n", NETWORK]
    parts += [table(("pod", "port of", "in the block", "on the pods' network", "source"), ports)]
    return "\n".join(parts)


def _rows(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for field, value in row.items():
        if field not in ("description", "sources"):
            yield f"`{field}`", _text(value), row["sources"].get(field, "")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_text(member) or 'any'}" for name, member in value.items())
    if isinstance(value, list):
        return ", ".join(_path(entry) if isinstance(entry, dict) else str(entry) for entry in value)
    return str(value)


def _path(entry: dict[str, str]) -> str:
    when = {"WithoutRuntime": " (HostPath only)", "SeveralNodes": " (several nodes)"}.get(entry.get("use", ""), "")
    return f"{entry['path']}{when}"

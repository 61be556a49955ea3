"""A simulated node with Ascend devices: npu-smi and hccn_tool as executables on PATH, and topologies of hosts.

The output has the layout of npu-smi 25.2 on Atlas 800T A2 and 900 A3 (columns, header lines, process table) and of
hccn_tool. Each call prints the file that is named like its arguments, so a test changes a result by writing one file.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from rljob_runtime.node.affinity import Topology, parse_cpus

RULE = "+---------------------------+---------------+----------------------------------------------------+"
THICK = RULE.replace("-", "=")
TOOL = """#!/bin/sh
file="${0%/*}/answers/${0##*/} $*"
if [ -f "$file" ]; then
    cat "$file"
    case "$(cat "$file")" in *failed*|*busy*) exit 1 ;; esac
    exit 0
fi
echo "${0##*/}: no such option or device: $*" >&2
exit 1
"""
ASCEND_FD = """#!/bin/sh
# As ascend-fd 7.3: parse writes files into an empty folder, diag reads one folder per node and writes one report.
[ "$2" = -i ] && [ "$4" = -o ] || exit 0
case "$1" in
parse)
    [ -z "$(ls -A "$5")" ] || exit 0
    grep -rhos 'ERROR.*' "$3/process_log" > "$5/plog-parser-1-1.log"
    echo '{}' > "$5/ascend-kg-parser.json" ;;
diag)
    mkdir -p "$5/fault_diag_result"
    worker=$(cd "$3" && grep -ls HCCL */plog-parser-1-1.log | head -1)
    printf '{"Root_Cluster": {}, "Knowledge_Graph": {"analyze_success": true, "fault": [
        {"code": "AISW_CANN_HCCL_017", "cause_zh": "socket timeout", "fault_source": ["%s device-0"]}]}}' \
        "${worker%%/*}" > "$5/fault_diag_result/diag_report.json" ;;
esac
"""
A2_BUSES = ("c1", "01", "c2", "02", "81", "41", "82", "42")


@dataclass(frozen=True)
class Host:
    """The facts that the tools report about a machine."""

    name: str
    cards: int
    chips: int
    """Chips per card: 1 on A2, 2 on A3."""
    near: tuple[str, ...]
    """CPU affinity of each row of the topology; empty if the column is missing."""
    version: str = "26.0.rc1"
    firmware: str = "7.7.0.6.236"
    unhealthy: dict[int, str] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()
    """Logical ids that npu-smi does not list."""
    down: frozenset[int] = frozenset()
    addresses: dict[int, str | None] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    """Arguments of hccn_tool -> its output instead of the default."""
    network: str = "29.1.0"

    @property
    def devices(self) -> int:
        return self.cards * self.chips

    def info(self) -> str:
        phy = self.chips > 1
        second = "Phy-ID" if phy else ""
        lines = [
            RULE,
            f"| npu-smi {self.version:<24} Version: {self.version:<54}|",
            RULE,
            "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
            f"| Chip  {second:<20}| Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
            THICK,
        ]
        for logical in sorted(set(range(self.devices)) - self.lost):
            card, chip = divmod(logical, self.chips)
            health = self.unhealthy.get(logical, "OK")
            memory = "3416 / 65536"
            power = "178.5" if chip == 0 else "-"
            physical = f"{logical:<20}" if phy else " " * 20
            lines += [
                f"| {card:<5} {self.name:<20}| {health:<14}| {power:<11} 36                0    / 0             |",
                f"| {chip:<5} {physical}| {self.bus(logical):<14}| 0           0    / 0          {memory}         |",
                THICK if chip == self.chips - 1 else RULE,
            ]
        lines += [
            "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
            THICK,
            *(f"| No running processes found in NPU {card:<60} |" for card in range(self.cards)),
            THICK,
        ]
        return "\n".join(lines) + "\n"

    def bus(self, logical: int) -> str:
        return f"0000:{A2_BUSES[logical].upper()}:00.0" if self.chips == 1 else f"0000:{0x81 + 2 * logical:02X}:00.0"

    def mapping(self) -> str:
        lines = [
            "\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name"
        ]
        for card in range(self.cards):
            lines += [
                f"\t{card:<30} {chip:<30} {card * self.chips + chip:<30} Ascend {self.name}"
                for chip in range(self.chips)
            ]
            lines.append(f"\t{card:<30} {self.chips:<30} {'-':<30} Mcu")
        return "\n".join(lines) + "\n"

    def topology(self) -> str:
        word = "NPU" if self.chips == 1 else "Phy-ID"
        names = [f"{word}{row}" for row in range(self.devices)]
        head = "".join(f"{name:<11}" for name in names)
        lines = [f"\t   {head}{'CPU Affinity' if self.near else ''}"]
        for row, name in enumerate(names):
            links = "".join(f"{'X' if other == row else 'HCCS':<11}" for other in range(self.devices))
            lines.append(f"{name:<11}{links}{self.near[row] if self.near else ''}".rstrip())
        lines += [
            "",
            "Legend:",
            "",
            "  X    = Self",
            "  SYS  = Path traversing PCIe and NUMA nodes. Nodes are connected through SMP, such as QPI, UPI.",
            "  HCCS = Connection traversing HCCS.",
            "  NA   = Unknown relationship.",
        ]
        return "\n".join(lines) + "\n"

    def board(self) -> str:
        rows = {
            "NPU ID": "0",
            "Product Name": "IT21DMDA",
            "Software Version": self.version,
            "Firmware Version": self.firmware,
            "Compatibility": "OK",
            "Chip Count": str(self.chips),
        }
        return "".join(f"\t{key:<31}: {value}\n" for key, value in rows.items())

    def install(self, folder: Path) -> Path:
        """Write both tools and their output files; return the folder for PATH."""
        answers = folder / "answers"
        answers.mkdir(parents=True, exist_ok=True)
        for tool in ("npu-smi", "hccn_tool"):
            (folder / tool).write_text(TOOL)
            (folder / tool).chmod(0o755)
        (answers / "npu-smi info").write_text(self.info())
        (answers / "npu-smi info -m").write_text(self.mapping())
        (answers / "npu-smi info -t topo").write_text(self.topology())
        for card in range(self.cards):
            (answers / f"npu-smi info -t board -i {card}").write_text(self.board())
        for device in range(self.devices):
            state = "DOWN" if device in self.down else "UP"
            (answers / f"hccn_tool -i {device} -link -g").write_text(f"link status: {state}\n")
            address = self.addresses.get(device, f"{self.network}.{device + 10}")
            text = f"ipaddr:{address}\nnetmask:255.255.0.0\n"
            none = "Get ip failed, because no ip was preset there!\n"
            (answers / f"hccn_tool -i {device} -ip -g").write_text(none if address is None else text)
        for arguments, text in self.said.items():
            (answers / f"hccn_tool {arguments}").write_text(text)
        return folder

    def with_(self, **changes: object) -> Host:
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type] # names are those of the class


def ranges(*bounds: tuple[int, int]) -> frozenset[int]:
    return frozenset(cpu for first, last in bounds for cpu in range(first, last + 1))


def blocks(count: int, size: int) -> dict[int, frozenset[int]]:
    """Return NUMA nodes of equal size with consecutive CPUs, as on Kunpeng."""
    return {node: ranges((node * size, (node + 1) * size - 1)) for node in range(count)}


def topology(nodes: dict[int, frozenset[int]], devices: int, near: tuple[str, ...], smt: int = 1) -> Topology:
    """Return a whole host with all CPUs allowed. With SMT, the siblings of CPU c are c + half of all, as on x86."""
    cpus = frozenset().union(*nodes.values())
    half = len(cpus) // smt
    cores = [frozenset(cpu + thread * half for thread in range(smt)) for cpu in range(half)]
    return Topology(cpus, nodes, cores, tuple(range(devices)), {d: parse_cpus(text) for d, text in enumerate(near)})


# Atlas 800T A2, Kunpeng 920: 4 sockets of 48 cores without SMT; one or two NUMA nodes per socket, by BIOS setting.
# Affinities as npu-smi reports them: pairs of NPUs share a range (ktransformers issue 1776 for eight nodes).
A2_NEAR_8 = ("144-167", "144-167", "96-119", "96-119", "0-23", "0-23", "48-71", "48-71")
A2_NEAR_4 = ("144-191", "144-191", "96-143", "96-143", "0-47", "0-47", "48-95", "48-95")
# Two Xeon or EPYC sockets with SMT: four NPUs each.
X86_NODES = {0: ranges((0, 47), (96, 143)), 1: ranges((48, 95), (144, 191))}
X86_NEAR = ("0-47,96-143",) * 4 + ("48-95,144-191",) * 4
# Atlas 900 A3: 640 CPUs in 8 NUMA nodes (vllm-ascend, design of CPU binding); another SKU has 320. All NUMA nodes
# have the same distance from a die.
A3_NEAR = ("0-639",) * 16

A2 = Host("910B3", 8, 1, A2_NEAR_8)
A3 = Host("Ascend910", 8, 2, A3_NEAR)

HOSTS = {
    "A2, Kunpeng, 8 NUMA nodes": topology(blocks(8, 24), 8, A2_NEAR_8),
    "A2, Kunpeng, 4 NUMA nodes": topology(blocks(4, 48), 8, A2_NEAR_4),
    "A2, x86 with SMT": topology(X86_NODES, 8, X86_NEAR, smt=2),
    "A3, 640 CPUs": topology(blocks(8, 80), 16, A3_NEAR),
    "A3, 320 CPUs, no affinity told": topology(blocks(4, 80), 16, ()),
}

"""Which network interface HCCL, Gloo and TensorPipe use in this pod, where the manifest names none.

In a pod or on a node with several interfaces each library guesses on its own, and one wrong guess hangs the run. The
pod's address is known, so the interface that holds it is named to all three, in every process as it begins. What the
user sets wins; an interface that is named and not there is an error that names node and interface.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.contract import PodVariable

HCCL, GLOO, TENSORPIPE = "HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"
EXACT = (GLOO, TENSORPIPE)
"""These take one interface's name; HCCL's takes prefixes, lists and exclusions."""
HCCL_ADDRESS = "HCCL_IF_IP"
SIOCGIFCONF = 0x8912
"""linux/sockios.h"""
ENTRY_BYTES = 40
"""struct ifreq on 64-bit Linux: 16 bytes of name, then a sockaddr_in whose address is at 20 (netdevice(7))."""
INTERFACES_MAX = 256


class InterfaceError(RuntimeError):
    """An interface is named that this pod does not have."""


@dataclass(frozen=True)
class Interface:
    """An address of an interface; one with several addresses comes several times."""

    name: str
    address: str


def read_interfaces(proc: Path = Path("/proc")) -> tuple[Interface, ...]:
    """Read every address of this network namespace, IPv4 from the kernel's list, IPv6 from /proc/net/if_inet6."""
    return (*_ipv4(), *_ipv6(proc / "net/if_inet6"))


def interface_of(address: str, interfaces: Sequence[Interface]) -> str | None:
    """Give the interface that holds an address."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return None
    return next((entry.name for entry in interfaces if ipaddress.ip_address(entry.address) == wanted), None)


def hccl_matches(rule: str, names: Sequence[str]) -> list[str]:
    """Give the interfaces that HCCL_SOCKET_IFNAME selects.

    `eth,enp`: by prefix; `=eth0,enp0`: exactly; `^` before either: all others (CANN, HCCL_SOCKET_IFNAME).
    """
    rest = rule.strip()
    excluded, rest = rest.startswith("^"), rest.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    words = [word.strip() for word in rest.split(",") if word.strip()]
    hit = [name for name in names if any(name == word if exact else name.startswith(word) for word in words)]
    return [name for name in names if name not in hit and name != "lo"] if excluded else hit


def choose(environ: Mapping[str, str], interfaces: Sequence[Interface]) -> dict[str, str]:
    """Give the variables that are to be set; raises InterfaceError for a name that is not there."""
    names = sorted({entry.name for entry in interfaces})
    have = f"this pod has {', '.join(names) or 'none'}"
    for variable in EXACT:
        named = environ.get(variable, "")
        if missing := [name for name in filter(None, named.split(",")) if name not in names]:
            raise InterfaceError(f"{variable}={named}: there is no interface {missing[0]}; {have}")
    rule = environ.get(HCCL)
    selected = hccl_matches(rule, names) if rule else []
    if rule and not selected:
        raise InterfaceError(f"{HCCL}={rule} selects no interface; {have}")
    own = environ.get(PodVariable.POD_IP) or environ.get(HCCL_ADDRESS)
    found = selected[0] if len(selected) == 1 else interface_of(own, interfaces) if own else None
    if found is None:
        return {}
    wanted = {HCCL: f"={found}", GLOO: found, TENSORPIPE: found}
    return {name: value for name, value in wanted.items() if not environ.get(name)}


def apply(environ: MutableMapping[str, str]) -> None:
    """Set what `choose` gives in this process; the check of the node tells what is wrong, this only leaves it."""
    try:
        environ.update(choose(environ, read_interfaces()))
    except (InterfaceError, OSError):
        return


def _ipv4() -> list[Interface]:
    buffer = bytearray(ENTRY_BYTES * INTERFACES_MAX)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        view = (len(buffer), _address_of(buffer))
        answer = fcntl.ioctl(sock.fileno(), SIOCGIFCONF, struct.pack("iL", *view))
    used = struct.unpack("iL", answer)[0]
    found = []
    for start in range(0, used, ENTRY_BYTES):
        entry = bytes(buffer[start : start + ENTRY_BYTES])
        # An alias such as eth0:1 is an address of eth0.
        name = entry[:16].partition(b"\0")[0].decode().partition(":")[0]
        found.append(Interface(name, socket.inet_ntoa(entry[20:24])))
    return found


def _address_of(buffer: bytearray) -> int:
    import ctypes

    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))


def _ipv6(file: Path) -> list[Interface]:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines]
    return [Interface(row[5], str(ipaddress.IPv6Address(bytes.fromhex(row[0])))) for row in words if len(row) == 6]


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """Name this node for people and for the operator: the Kubernetes node, or the host where there is none."""
    return environ.get(PodVariable.NODE_NAME) or socket.gethostname()

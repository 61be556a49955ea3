"""Choose the network interface that HCCL, Gloo and TensorPipe use in this pod, if the manifest names none.

With several interfaces, each library chooses on its own, and one wrong choice hangs the run. The pod's address is
known, so every process sets the interface with this address for all three libraries when it starts. The user's
settings take precedence. An interface that is named but does not exist is an error that names node and interface.
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
"""These accept the name of one interface. HCCL's variable accepts prefixes, lists and exclusions."""
HCCL_ADDRESS = "HCCL_IF_IP"
SIOCGIFCONF = 0x8912
"""linux/sockios.h"""
ENTRY_BYTES = 40
"""struct ifreq on 64-bit Linux: 16 bytes of name, then a sockaddr_in with the address at offset 20 (netdevice(7))."""
INTERFACES_MAX = 256


class InterfaceError(RuntimeError):
    """A variable names an interface that this pod does not have."""


@dataclass(frozen=True)
class Interface:
    """An address of an interface. An interface with several addresses has several entries."""

    name: str
    address: str


def read_interfaces(proc: Path = Path("/proc")) -> tuple[Interface, ...]:
    """Return every address in this network namespace: IPv4 from the kernel's list, IPv6 from /proc/net/if_inet6."""
    return (*_ipv4(), *_ipv6(proc / "net/if_inet6"))


def interface_of(address: str, interfaces: Sequence[Interface]) -> str | None:
    """Return the interface with an address."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return None
    return next((entry.name for entry in interfaces if ipaddress.ip_address(entry.address) == wanted), None)


def hccl_matches(rule: str, names: Sequence[str]) -> list[str]:
    """Return the interfaces that HCCL_SOCKET_IFNAME selects.

    `eth,enp` selects by prefix, `=eth0,enp0` exactly, `^` before either all others (CANN, HCCL_SOCKET_IFNAME).
    """
    rest = rule.strip()
    excluded, rest = rest.startswith("^"), rest.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    words = [word.strip() for word in rest.split(",") if word.strip()]
    hit = [name for name in names if any(name == word if exact else name.startswith(word) for word in words)]
    return [name for name in names if name not in hit and name != "lo"] if excluded else hit


def choose(environ: Mapping[str, str], interfaces: Sequence[Interface]) -> dict[str, str]:
    """Return the variables to set. Raises InterfaceError for an interface that does not exist."""
    names = sorted({entry.name for entry in interfaces})
    have = f"this pod has {', '.join(names) or 'none'}"
    for variable in EXACT:
        named = environ.get(variable, "")
        if missing := [name for name in filter(None, named.split(",")) if name not in names]:
            raise InterfaceError(f"{variable}={named}: interface {missing[0]} does not exist; {have}")
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
    """Set the variables from `choose` in this process. Errors are ignored here: the node checks report them."""
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
    """Return this node's name for people and for the operator: the Kubernetes node, otherwise the host name."""
    return environ.get(PodVariable.NODE_NAME) or socket.gethostname()

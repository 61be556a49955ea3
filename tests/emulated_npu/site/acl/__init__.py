"""The functions of pyACL that Ray, vllm-ascend and MindSpeed call, from the emulated libascendcl."""

from __future__ import annotations

import ctypes

from acl import rt


def init(*_: object) -> int:
    """Return success."""
    return 0


def finalize() -> int:
    """Return success."""
    return 0


def get_soc_name() -> str:
    """Return the name of the chip."""
    rt.LIBRARY.aclrtGetSocName.restype = ctypes.c_char_p
    name: bytes = rt.LIBRARY.aclrtGetSocName()
    return name.decode()

"""pyACL's runtime."""

from __future__ import annotations

import ctypes

LIBRARY = ctypes.CDLL("libascendcl.so", mode=ctypes.RTLD_GLOBAL)


def memcpy(to: int, most: int, source: int, count: int, kind: int) -> int:
    """Return the error of a copy."""
    sizes = (ctypes.c_void_p(to), ctypes.c_size_t(most), ctypes.c_void_p(source), ctypes.c_size_t(count))
    error: int = LIBRARY.aclrtMemcpy(*sizes, kind)
    return error


def get_device_count() -> tuple[int, int]:
    """Return the number of devices, and the error."""
    count = ctypes.c_uint32()
    error: int = LIBRARY.aclrtGetDeviceCount(ctypes.byref(count))
    return count.value, error

"""Around the import of triton-ascend's back ends: a driver that compiles nothing. Kernels are interpreted.

TRITON_INTERPRET=1 has to be set. Without a driver, vLLM and vllm-ascend take their paths without Triton, and MindSpeed
cannot be imported.
"""

from __future__ import annotations

from types import ModuleType


class Utilities:
    """What triton-ascend says of a device."""

    def get_arch(self) -> str:
        """Return the name of the chip."""
        return "Ascend910B1"

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return the numbers by which vllm-ascend divides its grids."""
        del device
        return {"max_shared_mem": 1, "num_aicore": 2, "num_vectorcore": 4}

    def get_aicore_num(self) -> int:
        """Return the number of cube cores."""
        return 2

    def get_aivector_core_num(self) -> int:
        """Return the number of vector cores."""
        return 4


def before() -> None:
    """Do nothing."""


def after(module: ModuleType) -> None:
    """Replace the driver."""
    driver = module.backends["ascend"].driver
    driver.is_active = classmethod(lambda _: True)
    # The autotuner takes the first configuration.
    driver.get_benchmarker = lambda _: lambda *_, quantiles: [0.0] * len(quantiles)
    driver.__init__ = lambda self: setattr(self, "utils", Utilities())

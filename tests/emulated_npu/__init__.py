"""An emulated NPU for tests: the Python stack of the Ascend image runs on it without CANN (README.md)."""

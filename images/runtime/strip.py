"""Remove files that no process of the CPU image loads from a virtual environment, and test that the rest still works.

PyPI's torch is the CUDA build: its libraries are linked against most of CUDA, so those must stay although no kernel
ever runs. The removable files were found by comparing the environment with the mappings (/proc/<pid>/maps) of every
process of a verl run with vLLM. Run it with the environment's own Python.
"""

from __future__ import annotations

import compileall
import importlib
import re
import shutil
import sys
import sysconfig
from pathlib import Path

REMOVED = {
    "triton": "compiles kernels for GPUs; torch, verl and vLLM import without it",
    "triton-*.dist-info": "metadata of a removed distribution",
    "nvidia/cudnn/lib/libcudnn_*": "cuDNN's engines: loaded by its shim at the first convolution on a GPU",
    "nvidia/cudnn/include": "headers",
    "nvidia/cu13/include": "headers",
    "nvidia/cu13/bin": "compilers",
    "nvidia/cu13/nvvm": "compilers",
    "nvidia/cu13/lib/libnvrtc.alt.so.*": "a second run-time compiler",
    "nvidia/cu13/lib/libcusolverMg.so.*": "for several GPUs",
    "nvidia/cu13/lib/libnvperf_*": "profiling of GPUs",
    "nvidia/cu13/lib/*.a": "static libraries",
    "nvidia/nvshmem/lib/libnvshmem_device*": "device code",
    "nvidia/nvshmem/lib/nvshmem_transport_*": "device networks",
    "nvidia/nccl/include": "headers",
    "torch/include": "headers",
    "torch/lib/libtorch_cuda_linalg.so": "loaded at the first decomposition on a GPU",
    "torch/bin/protoc*": "compilers",
    "torch/bin/ptxas": "compilers",
    "ray/cpp": "Ray's C++ API",
    "ray/jars": "Ray's Java API",
    "pyarrow/include": "headers",
    "pyarrow/libarrow_flight*": "remote procedure calls",
    "cuda": "bindings for GPUs",
}
"""Pattern below site-packages -> why it can be removed."""

NOT_COMPILED = re.compile(r"/(tests?|anthropic|openai|wandb|mistral_common|sympy|networkx|torch/testing)/")
"""Modules that are rarely or never imported, whose bytecode is not worth its size."""

IMPORTED = (
    "ray",
    "transformers",
    "tensordict",
    "transfer_queue",
    "verl.trainer.main_ppo",
    "vllm",
    "vllm.v1.engine.core",
    "arctic_inference.suffix_decoding",
)


def main() -> None:
    """Remove files, compile the rest to bytecode, and test it."""
    site = Path(sysconfig.get_path("purelib"))
    freed = sum(remove(path) for pattern in REMOVED for path in sorted(site.glob(pattern)))
    for cache in list(site.rglob("__pycache__")):
        shutil.rmtree(cache)
    compileall.compile_dir(site, quiet=2, rx=NOT_COMPILED, workers=0)
    say(f"freed {freed / 1e6:.0f} MB")
    test()


def remove(path: Path) -> int:
    """Remove a file or folder and return its size."""
    if path.is_dir() and not path.is_symlink():
        size = sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
        shutil.rmtree(path)
        return size
    size = path.stat().st_size
    path.unlink()
    return size


def test() -> None:
    """Import what a run imports and compute a little. Raises if a required file was removed."""
    for name in IMPORTED:
        importlib.import_module(name)
    torch = sys.modules["torch"]
    layer = torch.nn.Linear(8, 8)
    layer(torch.ones(2, 8)).sum().backward()
    torch.linalg.qr(torch.eye(3))
    say(f"torch {torch.__version__} computes, {len(sys.modules)} modules imported")


def say(text: str) -> None:
    """Print one line to the build's log."""
    print(f"strip: {text}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

"""Build what the emulated NPU has in the place of CANN and of a driver.

    build.py FOLDER

Run it with the Python of an environment that has torch, torch_npu and vllm-ascend. It needs g++, binutils and torch's
headers, and writes:

    lib/        libascendcl.so (native/cann.c) and every other library that the packages name and the machine lacks
    site/       emulated_npu_operators, the extension module of native/operators.cpp
    toolkit/    the version file and the folders of a toolkit
    bin/        npu-smi
"""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
CANN_VERSION = "9.1.0"
LINKED = ("torch_npu", "vllm_ascend", "torch", "torchvision", "torchaudio")
"""Packages that are linked against CANN or, as PyPI's torch for x86_64, against CUDA."""
CUDA = ("torch/lib/libtorch_cuda*.so", "torch/lib/libtorch_nvshmem.so")
"""Files of PyPI's torch for x86_64 that have its kernels for CUDA. Without them torch finds no other device, as does
the build for CPUs that the Ascend image has."""
TYPE_INFO = "_ZTVN10__cxxabiv117__class_type_infoE"
REFERENCES = ("_ZN4c10d15get_gil_checkerEv",)
"""Functions that return a reference, to which torch writes when it is loaded (ProcessGroupNCCL.hpp)."""
NPU_SMI = """#!/bin/sh
# What verl reads of npu-smi (utils/device.py): the driver's version, by which it chooses how weights are transferred.
version="${EMULATED_NPU_DRIVER:-24.1.0}"
case "$*" in
*"-t board"*) printf 'NPU ID : 0\\nSoftware Version : %s\\nChip Name : 910B1\\n' "$version" ;;
*) printf '| npu-smi %s Version: %s |\\n' "$version" "$version" ;;
esac
"""


def run(*command: str | Path) -> str:
    """Return the output of a program."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def symbols(path: Path, kind: str) -> set[str]:
    """Return the dynamic symbols of a library that are `defined` or `undefined`, without weak ones."""
    lines = run("nm", "-D", f"--{kind}-only", path).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if " w " not in line}


def needed(path: Path) -> set[str]:
    """Return the names of the libraries that a library asks for."""
    lines = run("readelf", "-d", path).splitlines()
    return {line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line}


def found(path: Path) -> dict[str, Path | None]:
    """Return the libraries that the loader would load with a library, by name; None for one that is missing."""
    places = (line.strip().split(" => ") for line in run("ldd", path).splitlines() if " => " in line)
    return {name: None if "not found" in place else Path(place.split(" (")[0]) for name, place in places}


def link(target: Path, *sources: str | Path) -> None:
    """Compile and link a shared library whose functions and libraries may be missing."""
    words = ("gcc", "-shared", "-fPIC", "-O1", "-w", f'-DCANN_VERSION="{CANN_VERSION}"', f"-Wl,-soname,{target.name}")
    run(*words, "-o", target, *sources)


def stub(names: Iterable[str]) -> str:
    """Return the assembly of functions that return 0 or a reference, and of the types and tables of C++ classes."""
    text = [".text"]
    for name in sorted(names):
        if not name.startswith(("_ZTI", "_ZTV")):
            result = "lea written(%rip),%rax" if name in REFERENCES else "xor %eax,%eax"
            text.append(f".globl {name}\n.type {name},@function\n{name}: {result}\n ret")
    text.append(".data\n.balign 8\nwritten: .zero 64")
    for name in sorted(names):
        if name.startswith("_ZTI"):
            text.append(f'.globl {name}\n{name}: .quad {TYPE_INFO}+16, 1f\n1: .asciz "{name[4:]}"\n.balign 8')
        elif name.startswith("_ZTV"):
            text.append(f".globl {name}\n{name}: .zero 512")
    return "\n".join([*text, '.section .note.GNU-stack,"",@progbits', ""])


def build_libraries(folder: Path) -> None:
    """Write libascendcl.so, with every function that nothing defines, and the other libraries, which are empty."""
    folder.mkdir(parents=True, exist_ok=True)
    site = Path(sysconfig.get_path("purelib"))
    for pattern in CUDA:
        for path in site.glob(pattern):
            path.unlink()
    linked = [path for name in LINKED for path in (site / name).rglob("*.so*") if "vendors" not in path.parts]
    own = {path.name for path in linked}
    missing, loaded = set[str](), {Path(sys.executable).resolve(), *linked}
    for path in linked:
        places = found(path)
        missing |= {name for name, place in places.items() if place is None and name not in own}
        loaded |= {place for place in places.values() if place is not None and "torchvision.libs" not in place.parts}
    loaded |= set(Path(sysconfig.get_config_var("LIBDIR")).glob("libpython3*.so*"))
    library = folder / "libascendcl.so"
    link(library, HERE / "native/cann.c")
    wanted = set[str]().union(*(symbols(path, "undefined") for path in linked))
    wanted -= symbols(library, "defined").union(*(symbols(path, "defined") for path in loaded))
    functions = {name for name in wanted if not name.startswith(("_ZTH", "__gmon", "_ITM", "Py", "_Py"))}
    rest = folder / "rest.s"
    rest.write_text(stub(functions))
    link(library, HERE / "native/cann.c", rest, "-lstdc++")
    rest.unlink()
    for name in sorted(missing - {library.name}):
        # A function is found whichever library is asked, because dlsym searches a library's dependencies too.
        link(folder / name, "-Wl,--no-as-needed", library, "-Wl,-rpath,$ORIGIN", "-x", "c", "/dev/null")
    print(f"{len(missing)} libraries, {len(functions)} functions that return a constant")


def build_operators(folder: Path) -> None:
    """Compile the extension module."""
    folder.mkdir(parents=True, exist_ok=True)
    site = Path(sysconfig.get_path("purelib"))
    torch, name = site / "torch", "emulated_npu_operators"
    includes = (torch / "include", torch / "include/torch/csrc/api/include", Path(sysconfig.get_path("include")))
    command = (
        *("g++", "-O1", "-g0", "-std=c++17", "-fPIC", "-shared", "-w"),
        *(f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H", "-DUSE_C10D_GLOO", "-DUSE_DISTRIBUTED"),
        *(f"-I{path}" for path in includes),
        *(str(HERE / "native/operators.cpp"), "-o", str(folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")),
        *(f"-L{torch}/lib", "-ltorch_cpu", "-lc10", "-ltorch_python", f"-L{site}/torch_npu/lib", "-ltorch_npu"),
        "-Wl,--allow-shlib-undefined",
    )
    run(*command)


def write_toolkit(folder: Path) -> None:
    """Write what torch_npu and verl look for below ASCEND_HOME_PATH, and npu-smi."""
    info = folder / "toolkit" / f"{platform.machine()}-linux" / "ascend_toolkit_install.info"
    info.parent.mkdir(parents=True, exist_ok=True)
    info.write_text(f"package_name=Ascend-cann-toolkit\nversion={CANN_VERSION}\n")
    for name in ("opp", "runtime", "compiler", "devlib"):
        (folder / "toolkit" / name).mkdir(exist_ok=True)
    # The check of the image looks for the toolkit's substitute for the driver.
    (folder / "toolkit/devlib/libascend_hal.so").symlink_to("../../lib/libascendcl.so")
    smi = folder / "bin/npu-smi"
    smi.parent.mkdir(exist_ok=True)
    smi.write_text(NPU_SMI)
    smi.chmod(0o755)


def main() -> None:
    """Build all of it."""
    folder = Path(sys.argv[1])
    build_libraries(folder / "lib")
    build_operators(folder / "site")
    write_toolkit(folder)


if __name__ == "__main__":
    main()

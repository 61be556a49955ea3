"""What goes together in an initializer: its type, the section of that type, and the source of a download."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.sources import Conversion, ConversionFormat, Download, DownloadSource, Initializer, InitializerType
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.lifecycle import persistence_violations
from rljob.core.validation.pods import normal
from rljob.core.validation.violation import Check, Violation
from rljob_runtime.contract.downloads import DatasetName

SECTIONS = {
    InitializerType.COMMAND: "command",
    InitializerType.MODEL: "download",
    InitializerType.DATASET: "download",
    InitializerType.CONVERSION: "conversion",
}
OF_MODELS = ("include", "exclude")
"""Fields of a download for which a data set has values of its own."""
HUBS = (DownloadSource.HUGGING_FACE, DownloadSource.MODEL_SCOPE)
OF_SOURCE = {"path": (DownloadSource.PATH,), "claim": (DownloadSource.PVC,)}
OF_HUBS = ("revision", "endpoint", "credentials", "repository")
"""Fields that only a hub has a use for."""


def _an_initializer_has_the_section_of_its_type(spec: RLJobSpec) -> Iterator[Violation]:
    for index, initializer in enumerate(spec.initializers):
        field = f"spec.initializers[{index}]"
        yield from _of_type(initializer, field)
        if initializer.download is not None and SECTIONS[initializer.type] == "download":
            yield from _of_kind(initializer.download, initializer.type, f"{field}.download")
            yield from _of_source(initializer.download, f"{field}.download")
        if initializer.conversion is not None and SECTIONS[initializer.type] == "conversion":
            yield from _of_format(initializer.conversion, f"{field}.conversion")


def _of_type(initializer: Initializer, field: str) -> Iterator[Violation]:
    kind = initializer.type
    for section in dict.fromkeys(SECTIONS.values()):
        present = getattr(initializer, section) not in (None, [])
        if present and section != SECTIONS[kind]:
            yield Violation(f"{field}.{section}", f"is not read with type {kind}; remove it, or set another type")
        if not present and section == SECTIONS[kind]:
            yield Violation(f"{field}.{section}", f"is required with type {kind}")
    if kind is not InitializerType.COMMAND and initializer.creates is not None:
        yield Violation(f"{field}.creates", f"is for type Command; type {kind} finds out by itself what exists")


def _of_kind(download: Download, kind: InitializerType, field: str) -> Iterator[Violation]:
    if kind is InitializerType.MODEL:
        if download.dataset is not None:
            yield Violation(f"{field}.dataset", "requires type Dataset, not Model; set one of the two")
        if download.source in HUBS and download.repository is None:
            yield Violation(f"{field}.repository", f"is required with source {download.source}, such as Qwen/Qwen3-8B")
        return
    if download.dataset is None:
        yield Violation(f"{field}.dataset", f"is required with type {kind}; the names are {', '.join(DatasetName)}")
    for name in OF_MODELS:
        if getattr(download, name) not in (None, []):
            yield Violation(f"{field}.{name}", f"is for type Model; the files of {download.dataset} are known")


def _of_format(conversion: Conversion, field: str) -> Iterator[Violation]:
    if conversion.format is ConversionFormat.CHECKPOINT:
        if conversion.pods > 1:
            yield Violation(f"{field}.pods", "is for format FP8ToBF16; one process merges a checkpoint, so remove it")
    elif conversion.step is not None:
        yield Violation(f"{field}.step", f"requires format Checkpoint, not {conversion.format}; set one of the two")


def _of_source(download: Download, field: str) -> Iterator[Violation]:
    source = download.source
    for name, sources in OF_SOURCE.items():
        present = getattr(download, name) is not None
        if present and source not in sources:
            yield Violation(f"{field}.{name}", f"requires source {sources[0]}, not {source}; set one of the two")
        if not present and source in sources:
            yield Violation(f"{field}.{name}", f"is required with source {source}")
    for name in OF_HUBS:
        if source not in HUBS and getattr(download, name) is not None:
            yield Violation(f"{field}.{name}", f"is for a hub, and source is {source}; remove it")


def _results_outlive_the_initializer(spec: RLJobSpec) -> Iterator[Violation]:
    """What an initializer of the runtime writes is read by the pods after it."""
    for index, initializer in enumerate(spec.initializers):
        section = SECTIONS[initializer.type]
        written = getattr(initializer, section)
        if isinstance(written, Download | Conversion):
            field = f"spec.initializers[{index}].{section}.to"
            yield from persistence_violations(spec, field, written.to, fields.trainer_template(spec))
        if (conversion := initializer.conversion) is not None and normal(conversion.to) == normal(conversion.from_):
            yield Violation(
                f"spec.initializers[{index}].conversion.to",
                f"{conversion.to} is the folder that is converted; write to another one",
            )


CHECKS: tuple[Check, ...] = (_an_initializer_has_the_section_of_its_type, _results_outlive_the_initializer)

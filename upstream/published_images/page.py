"""The generated page on published images: what each tag has, its verdicts, and what to add. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rljob_runtime.image_check.facts import Launcher, Verdict
from rljob_runtime.image_check.report import headline
from scripts.reference import HEADER, table
from upstream.published_images.judged import judged
from upstream.published_images.table import IMAGES, VERL_MAIN, PublishedImage

INTRODUCTION = f"""\
Images for Ascend that their projects publish, and what [`check-image`](../guides/check-image.md) says of each. The
contents come from the Dockerfiles, not from the images: nothing was pulled, and no image for NPUs has been checked yet
(`rljob conformance`: `image-check`). Versions in *italics* are not pinned there; they are what the index had on the day
of the build. Run `rljob check-image IMAGE --class CLASS --deep` before the first job, and set `runtime.rayVersion` to
the Ray that it shows.

Tags of verl's images are those of its list of 2026-08-19 (verl at {VERL_MAIN[:9]}, `docker/ascend/supported_tags.md`).
The first tag of a row is for Atlas A3, the second for A2.
"""
PAIRS = (("torch", "torch-npu"), ("vllm", "vllm-ascend"), ("transformers",), ("numpy",), ("ray",), ("verl",))
"""Distributions in one column."""
MOVES = "moves to newer builds: copy it into your registry, or name it by digest"


def published_images_page() -> str:
    """Return docs/reference/published-images.md."""
    names = (", ".join(pair) for pair in PAIRS)
    head = ("image", "CANN, Python", *names, *(f"launcher {launcher}" for launcher in Launcher), "to add for Verl")
    parts = [
        HEADER,
        "# Published images for Ascend\n",
        INTRODUCTION,
        table(head, [tuple(_row(image)) for image in IMAGES]),
        "## Reasons\n",
        *(_reasons(image) for image in IMAGES),
        "## Sources\n",
        table(("image", "day of the build", "files"), [_sources(image) for image in IMAGES]),
    ]
    return "\n".join(parts)


def _row(image: PublishedImage) -> Iterator[str]:
    yield ", ".join(f"`{image.repository}:{tag}`" for tag in image.tags)
    yield f"{image.of_base('cann')}, {image.of_base('python')}"
    for pair in PAIRS:
        yield ", ".join(_version(image, name) for name in pair)
    judgement = judged(image)
    for launcher in Launcher:
        yield headline(judgement, launcher)
    if judgement.verdict(Launcher.VERL) is not Verdict.REFUSED:
        yield "nothing"
    else:
        wanted = judgement.install(Launcher.VERL)
        yield f"{len(wanted)} packages, see below" if wanted else "another image"


def _version(image: PublishedImage, name: str) -> str:
    version = image.versions.get(name, "–")
    return f"*{version}*" if name in dict(image.newest) else version


def _reasons(image: PublishedImage) -> str:
    judgement = judged(image)
    lines = [f"### {image.repository.rpartition('/')[2]}:{image.tags[0]}\n"]
    if image.moves:
        lines.append(f"- The tag {MOVES}.")
    lines += [f"- {reason}" for reason in judgement.reasons(Launcher.VERL)]
    if wanted := judgement.install(Launcher.VERL):
        lines.append(f"- To add: `pip install {shlex.join(wanted)}`")
    return "\n".join(lines) + "\n"


def _sources(image: PublishedImage) -> tuple[str, str, str]:
    files = dict.fromkeys(fact.file for fact in image.facts)
    shown = ", ".join(f"{file.clone.removesuffix('.git')} {file.commit[:9]} `{file.path}`" for file in files)
    return f"`{image.tags[0]}`", image.day, shown

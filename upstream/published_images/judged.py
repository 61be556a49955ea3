"""The verdict of the image check on the recorded facts of a published image. Pure."""

from __future__ import annotations

from rljob_runtime.image_check.facts import ImageFacts, Judgement, SeamFacts
from rljob_runtime.image_check.judge import judge
from rljob_runtime.image_check.seams import TABLE
from upstream.published_images.table import PublishedImage


def judged(image: PublishedImage) -> Judgement:
    """Return the judgement.

    Functions are taken to be as expected. The sources of vLLM 0.18.0 with vllm-ascend at ASCEND_018_BRANCH, of
    vllm-ascend at ASCEND_023_BRANCH and of Ray 2.48.0, 2.56.0 and 2.58.0 have every seam; vLLM 0.13.0 lacks a parameter
    of SuffixDecodingProposer.propose. verl's are not compared, since another release is replaced. vllm-ascend v0.23.0,
    whose Ray needs wget, installs it (Dockerfile.a3:29).
    """
    major, minor = (int(part) for part in image.of_base("python").split("."))
    seams = {seam.name: SeamFacts(found=True, parameters=seam.parameters) for seam in TABLE}
    tools = ("/usr/bin/bash", "/usr/bin/wget")
    return judge(ImageFacts((major, minor), *tools, image.versions, image.of_base("cann"), seams))

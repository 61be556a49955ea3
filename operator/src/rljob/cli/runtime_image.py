"""The image whose runtime is injected, for commands that render: stated, or that of the installed operator."""

from __future__ import annotations

from collections.abc import Iterable

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.installation import SELECTOR
from rljob.core.observed import Manifest

OPTION = "--runtime-image="


def installed(context: str | None) -> str | None:
    """Return the image that the operators of the cluster inject; None if they may not be read or do not agree."""
    images = _installed(context)
    return images.pop() if images is not None and len(images) == 1 else None


def the_installed(context: str | None) -> str:
    """Return the image that the operators of the cluster inject. Raise UsageError with why it is not known."""
    images, fix = _installed(context), "name the operator's image with --runtime-image"
    if images is None:
        raise kubectl.UnreadableError(
            f"Deployments of other namespaces may not be listed, so the operator's image is not known; {fix}"
        )
    if not images:
        raise kubectl.MissingKindError(
            f"no operator with an image is installed in the cluster; install the chart rljob-operator, or {fix}"
        )
    if len(images) > 1:
        raise UsageError(f"the operators of the cluster inject different images: {', '.join(sorted(images))}; {fix}")
    return images.pop()


def _installed(context: str | None) -> set[str] | None:
    """Return the images that operators inject; None if the caller may not list Deployments."""
    place = kubectl.Place(context=context)
    found = kubectl.list_readable("deployments.apps", place, kubectl.EVERYWHERE, "--selector", SELECTOR)
    return None if found is None else set(_images(found))


def note(specs: Iterable[RLJobSpec], *, cluster: bool) -> str:
    """Return what to say about an image that was neither stated nor found; empty if no job needs it."""
    image = next((spec.runtime.injected_image for spec in specs if spec.runtime.injected_image), None)
    if image is None:
        return ""
    fix = (
        "no single operator with an image was found in the cluster; state it by --runtime-image"
        if cluster
        else "state it by --runtime-image, or read it from the cluster by --cluster"
    )
    return f"{image} is the default of the operator's image, whose runtime is injected: {fix}"


def _images(deployments: Iterable[Manifest]) -> Iterable[str]:
    for deployment in deployments:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            for argument in container.get("args") or ():
                if argument.startswith(OPTION):
                    yield argument.removeprefix(OPTION)

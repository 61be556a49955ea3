"""`rljob check-image`: wire the arguments, the pod and the page together."""

from __future__ import annotations

import argparse
import secrets

from rljob.cli import kubectl, runtime_image
from rljob.cli.check_image import result
from rljob.cli.check_image.follow import Clock, run_check, say
from rljob.cli.errors import UsageError
from rljob.cli.output import DATA, data_page
from rljob.core.validation.images import FORM, SHOWN, image_problem
from rljob.render.image_check import ImageCheck

INTERRUPTED = 130
SECONDS, DEEP_SECONDS = 300, 1200


def check_image(chosen: argparse.Namespace, clock: Clock | None = None) -> int:
    """Check the image, print the result, and return the exit code of the launcher."""
    check = read_check(chosen)
    name = f"check-image-{secrets.token_hex(3)}"
    place = kubectl.Place(chosen.namespace, chosen.context)
    try:
        ended = run_check(check, name, place, clock or Clock())
    except KeyboardInterrupt:
        say(f"interrupted; pod {name} is deleted")
        return INTERRUPTED
    found = result.read(ended, check, chosen.accelerator_class)
    print(data_page([found], chosen.output, [check.image]) if chosen.output in DATA else result.page(found))
    return result.exit_code(found, chosen.launcher)


def read_check(chosen: argparse.Namespace) -> ImageCheck:
    """Return what to check. Raise UsageError if the arguments do not fit together."""
    name, accelerators = chosen.accelerator_class, chosen.accelerators
    for argument, named in (("IMAGE", chosen.image), ("--runtime-image", chosen.runtime_image)):
        if named is not None and (problem := image_problem(named)) is not None:
            raise UsageError(f"{argument} {named[:SHOWN]!r} {problem}; write {FORM}")
    if name is not None and name not in accelerators:
        raise UsageError(f"--class {name}: there is no such class; choose one of {', '.join(accelerators)}")
    image = chosen.runtime_image or runtime_image.the_installed(chosen.context)
    return ImageCheck(
        image=chosen.image,
        runtime_image=image,
        seconds=chosen.timeout or (DEEP_SECONDS if chosen.deep else SECONDS),
        user=chosen.run_as_user,
        pull_secrets=tuple(chosen.image_pull_secret),
        accelerator=accelerators[name] if name is not None else None,
        deep=chosen.deep,
    )

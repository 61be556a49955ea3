"""An image whose runtime does not know this operator's job.json: what the launcher refused, with the image and the fix.

The launcher reads job.json strictly (`rljob_runtime.contract.codec`) and names its own version, where it is new enough
to do so. It knows neither the name of its image nor what the operator needs.
"""

from __future__ import annotations

from dataclasses import replace

from rljob.api.v1alpha1 import Runtime
from rljob.core.attempts.classify import Failure
from rljob.core.attempts.start_advice import SETTING
from rljob.core.reasons import Reason
from rljob_runtime.contract import RUNTIME_VERSION, ExitCode

REFUSED = "ConfigInvalid"
"""The launcher's reason (rljob_runtime/preflight.py, read_job)."""


def with_image_named(failure: Failure, runtime: Runtime, injected: str | None) -> Failure:
    """Return the failure with the image and the fix, if the launcher refused its job.json.

    `injected` is the image of an injected runtime; None if the runtime is that of the job's image.
    """
    if failure.reason != REFUSED or failure.exit_code != ExitCode.BAD_CONFIG:
        return failure
    if injected is None:
        fix = (
            f"spec.runtime.image {runtime.image} has another rljob-runtime than this operator, which knows version "
            f"{RUNTIME_VERSION}: use an image of this release, or set spec.runtime.injection to Auto, which brings it"
        )
    else:
        fix = (
            f"the injected runtime of {injected} is of another release than this operator, which knows rljob-runtime "
            f"{RUNTIME_VERSION}: correct {SETTING}"
        )
    return replace(
        failure, reason=Reason.RUNTIME_MISMATCH.value, message=f"{fix}. The launcher said: {failure.message}"
    )

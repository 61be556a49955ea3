"""Invalid manifests: each with the reported field and a part of the message, by subject.

The core, `rljob validate` on a file, and a real API server are tested with the same table. The API server may reject
more by its schema, but never less.
"""

from corpus import (
    asynchronous,
    batches,
    command,
    data,
    devices,
    engines,
    hardware,
    judge,
    lifecycle,
    memory,
    model,
    optimizations,
    overrides,
    pods,
    rollout,
    separate,
    shape,
    trained,
    upstream,
)
from corpus.bad import Bad

BAD: dict[str, Bad] = {
    f"{subject.__name__.rpartition('.')[2]}: {name}": bad
    for subject in (
        shape,
        devices,
        hardware,
        batches,
        asynchronous,
        separate,
        command,
        data,
        judge,
        rollout,
        engines,
        pods,
        lifecycle,
        memory,
        model,
        optimizations,
        overrides,
        trained,
        upstream,
    )
    for name, bad in subject.BAD.items()
}

SAMPLE: dict[str, Bad] = dict(list(BAD.items())[:: len(BAD) // 20][:20])
"""Twenty of all subjects, for what shows or passes on the verdict of the core."""

"""Bad manifests: each with the field that is told and a part of the message, by subject.

The same table is checked by the core, by `rljob validate` on a file, and against a real API server, which may refuse
more by its schema but never less than this.
"""

from corpus import batches, devices, hardware, lifecycle, memory, overrides, pods, rollout, shape
from corpus.bad import Bad

BAD: dict[str, Bad] = {
    f"{subject.__name__.rpartition('.')[2]}: {name}": bad
    for subject in (shape, devices, hardware, batches, rollout, pods, lifecycle, memory, overrides)
    for name, bad in subject.BAD.items()
}

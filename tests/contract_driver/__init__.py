"""A trainer without torch behind the real launcher: what the lifecycle tests of a real cluster run.

Everything around it is the product: operator, launcher, Ray, claims, checkpoint folders, stop modes, spool, stall watch
and exporter. Only the training is played: processes in Ray actors, one a device, take steps of a fixed length and carry
a state of kilobytes whose content proves that every step was made exactly once, in order. `images.TABLE["contract"]`
installs it as the only other entry point of group `rljob_runtime.trainers`; see docs/design/0016.
"""

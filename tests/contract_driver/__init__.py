"""A trainer without torch for the lifecycle tests on a real cluster. The real launcher runs it.

Everything around it is the product: operator, launcher, Ray, claims, checkpoint folders, stop modes, spool, stall watch
and exporter. Only the training is simulated: one Ray actor per device takes steps of a fixed duration and keeps a few
kilobytes of state, whose content proves that every step was made exactly once and in order. `images.TABLE["contract"]`
installs it as the only other entry point of the group `rljob_runtime.trainers`; see docs/design/0016.
"""

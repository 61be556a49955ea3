"""A simulator of a rollout: how long a batch of responses takes, and where the time goes, by policy of placement.

`traces` has the lengths of responses, `step_time` the duration of a decoding step, `policies` who decodes what,
`simulation` runs a batch through an engine whose ranks decode in lockstep, and `outcome` sums it up. All of it is pure
and deterministic. Nothing here was measured by us: published values, values fitted to published ones and assumptions
say which they are where they stand.
"""

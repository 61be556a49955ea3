"""verl 0.9.1: from the typed spec to Hydra overrides and job.json, by tables with a row a key.

`rows` says what a row is, `training`, `rollout` and `lifecycle` hold them by the sections of the spec, `sizes` the
arithmetic that several share, `limits` what verl does not do although the API can say it, `job` joins everything. What
only wires verl to the pods (router, spool, ports, settings of the CPU platform) is the launcher's own business in
`rljob_runtime`; here stand the user's decisions.
"""

from rljob.launchers.verl.job import ENTRYPOINT, TABLE, TYPED_KEYS, job_config, overrides
from rljob.launchers.verl.limits import LIMITS, refusals
from rljob.launchers.verl.rows import OverrideRow, RowCondition
from rljob.launchers.verl.sizes import data_parallel_ranks, devices, micro_batch, mini_batch

__all__ = [
    "ENTRYPOINT",
    "LIMITS",
    "TABLE",
    "TYPED_KEYS",
    "OverrideRow",
    "RowCondition",
    "data_parallel_ranks",
    "devices",
    "job_config",
    "micro_batch",
    "mini_batch",
    "overrides",
    "refusals",
]

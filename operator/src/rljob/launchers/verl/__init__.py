"""verl 0.9.1: from the typed spec to Hydra overrides and job.json, through tables with one row per key.

`rows` defines a row. `training`, `critic`, `rollout` and `lifecycle` hold the rows by section of the spec, `sizes` the
arithmetic that they share, `job` joins them into job.json. `checks` refuses what verl would reject or misread,
`decisions` answers Auto, `memory` estimates what a step takes of a die, and `launcher` presents all of it to the core.
What wires verl to the pods (router, spool, ports, settings of the CPU platform) belongs to the launcher in
`rljob_runtime`; only decisions of the user are here.
"""

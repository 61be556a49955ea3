"""The border between operator and runtime: job.json, progress, exit codes, names of files, ports and variables.

Both distributions import this package and nothing else of each other. It uses the standard library only and does no
I/O. Every type has `to_json`, which gives canonical bytes (sorted keys, no spaces), and `from_json`, which rejects
what it does not know: a runtime image and an operator that disagree must say so before Ray work starts.
"""

from rljob_runtime.contract.codec import ContractError
from rljob_runtime.contract.exit_codes import ExitCode, Outcome
from rljob_runtime.contract.job import (
    CONTRACT_VERSION,
    JobConfig,
    OverrideValue,
    Platform,
    RequiredPath,
    ResumeMode,
    ResumeSource,
    RuleCondition,
    StopRule,
)
from rljob_runtime.contract.names import AttemptVariable, PodVariable, Port, SpoolFile, StepMetric, head_paths
from rljob_runtime.contract.progress import Phase, Progress, StopMode, StopRequest

__all__ = [
    "CONTRACT_VERSION",
    "AttemptVariable",
    "ContractError",
    "ExitCode",
    "JobConfig",
    "Outcome",
    "OverrideValue",
    "Phase",
    "Platform",
    "PodVariable",
    "Port",
    "Progress",
    "RequiredPath",
    "ResumeMode",
    "ResumeSource",
    "RuleCondition",
    "SpoolFile",
    "StepMetric",
    "StopMode",
    "StopRequest",
    "StopRule",
    "head_paths",
]

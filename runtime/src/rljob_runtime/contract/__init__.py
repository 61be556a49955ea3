"""The border between operator and runtime: job.json, progress, exit codes, names of files, ports and variables.

Both distributions import this package. The operator also imports `rljob_runtime.planning`, and nothing else of the
runtime; the runtime imports nothing of the operator. The package uses the standard library only and does no I/O. Every
type has `to_json`, which returns canonical bytes (sorted keys, no spaces), and `from_json`. Requests (job.json, a stop)
with unknown fields are rejected: an image and an operator that disagree must say so before Ray work starts. Responses
(progress, an outcome) may contain fields that the reader does not know.
"""

from rljob_runtime.contract.codec import ContractError, quoted
from rljob_runtime.contract.collection import COLLECT_SECONDS, Collection, NodeLogs
from rljob_runtime.contract.command import (
    CheckpointFence,
    CheckpointLayout,
    CommandCheckpoint,
    CommandConfig,
    CommandMetric,
    CommandProgress,
    CommandStop,
    Placeholder,
    ProgressSource,
)
from rljob_runtime.contract.drafts import DRAFTS_VARIABLE, Drafts
from rljob_runtime.contract.exit_codes import ExitCode, Outcome
from rljob_runtime.contract.export import (
    CHECKPOINT_SCORE,
    EXPORT_MANIFEST,
    RESULT_BYTES_MAX,
    ExportPlace,
    ExportRequest,
    ExportResult,
)
from rljob_runtime.contract.foreign_json import ForeignJSONError, legible
from rljob_runtime.contract.foreign_json import parse as parse_foreign_json
from rljob_runtime.contract.job import (
    CONTRACT_VERSION,
    RUNTIME_VERSION,
    JobConfig,
    LogRule,
    MinimumVersion,
    NodeGroup,
    NodeNeeds,
    OverrideValue,
    Platform,
    RequiredPath,
    ResumeMode,
    ResumeSource,
    Role,
    RuleCondition,
    StopRule,
    TrainerMode,
)
from rljob_runtime.contract.names import (
    IMAGE_SHELL_FILE,
    INJECTED_FOLDER,
    RAY_WITHOUT_TOKENS,
    ROLE_RESOURCES,
    UNAUTHENTICATED_RAY_MINIMUM,
    AttemptVariable,
    PodVariable,
    Port,
    SpoolFile,
    StepMetric,
    exporter_port,
    head_paths,
)
from rljob_runtime.contract.optimizations import Optimizations
from rljob_runtime.contract.progress import (
    NOTE_LIMIT,
    NOTES_MAX,
    STALL_SECONDS,
    CheckResult,
    CoreBinding,
    NodeFinding,
    Phase,
    Preflight,
    Progress,
    StopMode,
    StopRequest,
)
from rljob_runtime.contract.start import PassedStage, StartProgress, StartStage

__all__ = [
    "CHECKPOINT_SCORE",
    "COLLECT_SECONDS",
    "CONTRACT_VERSION",
    "DRAFTS_VARIABLE",
    "EXPORT_MANIFEST",
    "IMAGE_SHELL_FILE",
    "INJECTED_FOLDER",
    "NOTES_MAX",
    "NOTE_LIMIT",
    "RAY_WITHOUT_TOKENS",
    "RESULT_BYTES_MAX",
    "ROLE_RESOURCES",
    "RUNTIME_VERSION",
    "STALL_SECONDS",
    "UNAUTHENTICATED_RAY_MINIMUM",
    "AttemptVariable",
    "CheckResult",
    "CheckpointFence",
    "CheckpointLayout",
    "Collection",
    "CommandCheckpoint",
    "CommandConfig",
    "CommandMetric",
    "CommandProgress",
    "CommandStop",
    "ContractError",
    "CoreBinding",
    "Drafts",
    "ExitCode",
    "ExportPlace",
    "ExportRequest",
    "ExportResult",
    "ForeignJSONError",
    "JobConfig",
    "LogRule",
    "MinimumVersion",
    "NodeFinding",
    "NodeGroup",
    "NodeLogs",
    "NodeNeeds",
    "Optimizations",
    "Outcome",
    "OverrideValue",
    "PassedStage",
    "Phase",
    "Placeholder",
    "Platform",
    "PodVariable",
    "Port",
    "Preflight",
    "Progress",
    "ProgressSource",
    "RequiredPath",
    "ResumeMode",
    "ResumeSource",
    "Role",
    "RuleCondition",
    "SpoolFile",
    "StartProgress",
    "StartStage",
    "StepMetric",
    "StopMode",
    "StopRequest",
    "StopRule",
    "TrainerMode",
    "exporter_port",
    "head_paths",
    "legible",
    "parse_foreign_json",
    "quoted",
]

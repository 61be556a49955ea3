"""Where the trained model goes: which checkpoints are exported, and to where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from rljob.api import forms
from rljob.api.base import Count, Model, NonNegative, Path, Quantity, rule
from rljob.api.pods import ObjectReference
from rljob.api.sources import CodeClaim

Url = Annotated[str, Field(min_length=1, max_length=1024, pattern=forms.SERVER_URL.pattern)]


class Hub(Model):
    """A repository of a model hub."""

    repository: Annotated[str, Field(max_length=200, pattern=forms.HUB_REPOSITORY.pattern)]
    """Repository as owner/name. It is created if it does not exist."""
    visibility: Literal["Private", "Public"] = "Private"
    """Who may read a repository that the export creates. Defaults to Private."""
    endpoint: Url | None = None
    """URL of a hub that accepts uploads. Defaults to the hub's own."""
    secret_ref: ObjectReference
    """Secret in the job's namespace whose key `token` is the hub's access token."""


class MLflow(Model):
    """An MLflow tracking server. Each export is a run with the model's files as artifacts."""

    tracking_url: Url
    """URL of the server."""
    experiment: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the experiment. It is created if it does not exist."""
    secret_ref: ObjectReference | None = None
    """Secret in the job's namespace whose keys become variables of the export, such as MLFLOW_TRACKING_TOKEN."""


class ExportTarget(Model):
    """Where exports go."""

    REPLACED_WHOLE: ClassVar[bool] = True
    MEMBERS_BY_TYPE: ClassVar[Mapping[str, str]] = {
        "PVC": "persistentVolumeClaim",
        "HuggingFace": "huggingFace",
        "ModelScope": "modelScope",
        "MLflow": "mlflow",
    }
    CEL: ClassVar[tuple[JsonValue, ...]] = (
        rule(
            "(!has(self.type) || self.type == 'Path') == has(self.path)", "path goes with type Path, and only with it"
        ),
    )

    type: Literal["Path", "PVC", "HuggingFace", "ModelScope", "MLflow"] = "Path"
    """Kind of target, whose field is the only other one that is set. Path and PVC: each export is the folder
    global_step_<n> below it. Defaults to Path."""
    path: Path | None = None
    """Folder on a volume that outlives the pods and that the workers mount."""
    persistent_volume_claim: CodeClaim | None = None
    """Folder of a claim that only the export mounts."""
    hugging_face: Hub | None = None
    """Repository of the Hugging Face Hub. Each export is one commit."""
    model_scope: Hub | None = None
    """Repository of ModelScope. Each export is one commit. Needs the package modelscope in runtime.image."""
    mlflow: MLflow | None = None
    """MLflow tracking server. Needs the package mlflow in runtime.image."""


class Export(Model):
    """Checkpoints that are converted and written to a target by Jobs without NPUs."""

    when: Literal["Succeeded", "EveryCheckpoint", "Best", "OnRequest"] = "Succeeded"
    """Succeeded: the last checkpoint, when the run has succeeded. EveryCheckpoint: each one while the run continues,
    one at a time; while an export runs, newer checkpoints replace those that wait. Best: when the run has succeeded,
    the kept checkpoint with the highest score: that of validation if the run validates, else the mean reward.
    OnRequest: only those that `rljob export` names. Defaults to Succeeded."""
    format: Literal["HuggingFace"] = "HuggingFace"
    """Format of the export: safetensors with configuration and tokenizer. Defaults to HuggingFace."""
    to: ExportTarget
    """Where exports go."""
    cpu: Quantity | None = None
    """CPU request. The limit is the same, but at least 4. Defaults to 100m."""
    memory: Quantity | None = None
    """Memory request and limit. Defaults to what the conversion needs by the size of the model, or else by that of the
    checkpoint."""
    retries: Annotated[NonNegative, Field(le=20)] = 3
    """Number of retries after a failure. Defaults to 3."""
    timeout_seconds: Count = 7200
    """Seconds that all tries of one export together may take. Defaults to 7200."""

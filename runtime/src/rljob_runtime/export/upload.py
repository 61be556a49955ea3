"""Push a converted model to a model hub or to MLflow, with their own clients.

Credentials come from the environment only. Each client uploads the large files first and makes one commit (a hub), or
marks one run as finished (MLflow): a reader sees a whole model or none. What a killed try has uploaded is not uploaded
again, because hubs know files by their SHA-256.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rljob_runtime.contract import ExitCode, ExportPlace, ExportRequest, PodVariable
from rljob_runtime.export.errors import ExportError
from rljob_runtime.export.folder import Manifest

HUB = "https://huggingface.co"
PRIVATE, PUBLIC = 1, 5
"""modelscope/hub/constants.py, ModelVisibility (1.40.2)."""
DIGEST_TAG = "rljob.export.digest"
MODEL = "model"
"""Folder of the artifacts of an MLflow run."""
REFUSED_STATUS = (400, 401, 403, 404, 422)
"""Answers that do not change with another try: the token, the name or the permission is wrong."""


def upload(folder: Path, request: ExportRequest, manifest: Manifest) -> str:
    """Push the model and return where it is. Raises ExportError."""
    push = _PUSH[request.place]
    try:
        return push(folder, request, manifest)
    except ExportError:
        raise
    except Exception as error:  # noqa: BLE001 - of any client and of the network
        status = getattr(getattr(error, "response", None), "status_code", None)
        code = ExitCode.BAD_CONFIG if status in REFUSED_STATUS else ExitCode.ENVIRONMENT
        where = request.address or request.place
        # The clients' texts may repeat a request; their chain may too, so it is cut.
        text = str(error).splitlines()[0][:400] if str(error) else ""
        secret = os.environ.get(PodVariable.EXPORT_TOKEN) or None
        text = text.replace(secret, "…") if secret else text
        raise ExportError(code, "UploadFailed", f"{where}: {type(error).__name__}: {text}") from None


def _hugging_face(folder: Path, request: ExportRequest, manifest: Manifest) -> str:
    # Images of jobs have HF_HUB_OFFLINE=1, and the package reads it when it is imported (huggingface_hub 1.33,
    # constants.py:194). A value takes precedence over TRANSFORMERS_OFFLINE.
    os.environ["HF_HUB_OFFLINE"] = "0"
    hub = _package("huggingface_hub")
    api = hub.HfApi(endpoint=request.address or None, token=_token(request))
    api.create_repo(request.repository, private=request.private, exist_ok=True)
    done = api.upload_folder(
        repo_id=request.repository, folder_path=str(folder), commit_message=_title(request, manifest)
    )
    return f"{request.address or HUB}/{request.repository}/tree/{done.oid}"


def _model_scope(folder: Path, request: ExportRequest, manifest: Manifest) -> str:
    api = _package("modelscope.hub.api").HubApi(endpoint=request.address or None, token=_token(request))
    if not api.repo_exists(request.repository, repo_type="model"):
        api.create_repo(request.repository, repo_type="model", visibility=PRIVATE if request.private else PUBLIC)
    api.upload_folder(
        repo_id=request.repository,
        repo_type="model",
        folder_path=str(folder),
        commit_message=_title(request, manifest),
        token=_token(request),
    )
    return f"{request.address or 'https://modelscope.cn'}/models/{request.repository}"


def _mlflow(folder: Path, request: ExportRequest, manifest: Manifest) -> str:
    mlflow = _package("mlflow")
    mlflow.set_tracking_uri(request.address)
    experiment = mlflow.set_experiment(request.experiment).experiment_id
    known = mlflow.search_runs(
        [experiment],
        f"tags.`{DIGEST_TAG}` = '{manifest.digest}' and attributes.status = 'FINISHED'",
        output_format="list",
        max_results=1,
    )
    if known:
        return f"{known[0].info.artifact_uri}/{MODEL}"
    tags = {DIGEST_TAG: manifest.digest, "rljob.step": str(manifest.document["step"])}
    with mlflow.start_run(run_name=_title(request, manifest), tags=tags) as run:
        mlflow.log_artifacts(str(folder), MODEL)
    return f"{run.info.artifact_uri}/{MODEL}"


_PUSH: Mapping[ExportPlace, Callable[[Path, ExportRequest, Manifest], str]] = {
    ExportPlace.HUGGING_FACE: _hugging_face,
    ExportPlace.MODEL_SCOPE: _model_scope,
    ExportPlace.MLFLOW: _mlflow,
}


def _title(request: ExportRequest, manifest: Manifest) -> str:
    return f"{request.namespace}/{request.job} step {manifest.document['step']}"


def _token(request: ExportRequest) -> str:
    if not (token := os.environ.get(PodVariable.EXPORT_TOKEN, "").strip()):
        raise ExportError(
            ExitCode.BAD_CONFIG, "NoToken", f"the key `token` of the Secret for {request.place} is empty; set it"
        )
    return token


def _package(name: str) -> Any:  # noqa: ANN401 - a client without types
    try:
        return importlib.import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        raise ExportError(
            ExitCode.BAD_CONFIG, "PackageMissing", f"the image has no package {top}; add it to runtime.image ({error})"
        ) from error

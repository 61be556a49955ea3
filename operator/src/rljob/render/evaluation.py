"""The RLJob that evaluates a checkpoint: the job's own spec without what only training needs, as trainer.mode Evaluate.

Its only initializer converts the checkpoint to a model, so that it runs on any number of devices and the trainer's
retention cannot delete what it reads. A job has one such folder, which each evaluation fills with its own step.
"""

from __future__ import annotations

import math
from typing import Any

from rljob.api.evaluation import Evaluation
from rljob.api.sources import ConversionFormat, InitializerType
from rljob.api.texts import write_texts
from rljob.api.v1alpha1 import API_VERSION, RLJobSpec
from rljob.render import resources
from rljob.render.configmap import spec_document
from rljob.render.metadata import child_metadata
from rljob.render.names import JobIdentity

INITIALIZER = "checkpoint"
FOLDER = "evaluation"
"""Below checkpoint.path."""
KEPT_SECONDS = 24 * 3600
"""How long an evaluation's RLJob stays after its end."""
OF_TRAINING = (
    *("recipeRef", "unset", "suspend", "initializers", "checkpoint", "export", "evaluation", "stop", "stopRules"),
    # Limits on restarts require checkpoints; the defaults do not.
    *("optimizations", "restart"),
)

OF_TRAINER = ("evaluate", "async", "lora")
"""How the names of such fields of the trainer begin. A LoRA adapter is merged into the converted checkpoint."""


def build_evaluation(
    job: JobIdentity, spec: RLJobSpec, evaluation: Evaluation, name: str, step: int, memory_bytes: int | None
) -> dict[str, Any]:
    """Return the RLJob. `memory_bytes`: what the conversion needs, if it is known."""
    return {
        "apiVersion": API_VERSION,
        "kind": "RLJob",
        "metadata": child_metadata(job, name, f"evaluation/{step}"),
        "spec": write_texts(evaluation_document(spec, evaluation, step, memory_bytes)),
    }


def evaluation_document(
    spec: RLJobSpec, evaluation: Evaluation, step: int, memory_bytes: int | None = None
) -> dict[str, Any]:
    """Return the spec of an evaluation's RLJob, with maps in place of texts."""
    if spec.checkpoint is None:
        raise AssertionError("validation lets no evaluation without a checkpoint pass")
    document = {name: value for name, value in spec_document(spec).items() if name not in OF_TRAINING}
    folder = f"{spec.checkpoint.path.rstrip('/')}/{FOLDER}"
    memory = evaluation.memory or (
        None if memory_bytes is None else f"{math.ceil(memory_bytes / resources.MEBIBYTE)}Mi"
    )
    trainer = {name: value for name, value in document["trainer"].items() if not name.startswith(OF_TRAINER)}
    # Their template mounts the checkpoints.
    group = document["workerGroups"][spec.worker_groups.index(spec.trainer_group)]
    group.pop("roles", None)
    judge = [document["workerGroups"][spec.worker_groups.index(spec.judge_group)]] if spec.judge_group else []
    group |= {"nodes": evaluation.nodes} if evaluation.nodes else {}
    group |= {"devicesPerNode": evaluation.devices_per_node} if evaluation.devices_per_node else {}
    data = document["data"] | ({"validation": list(evaluation.validation)} if evaluation.validation else {})
    records = ("logPath", "samples")
    return document | {
        "initializers": [
            {
                "name": INITIALIZER,
                "type": InitializerType.CONVERSION.value,
                "conversion": {
                    "format": ConversionFormat.CHECKPOINT.value,
                    "from": spec.checkpoint.path,
                    "step": step,
                    "to": folder,
                },
                **({"memory": memory} if memory else {}),
            }
        ],
        "model": document["model"] | {"path": folder},
        "data": data,
        "trainer": trainer | {"mode": "Evaluate"},
        "workerGroups": [group, *judge],
        "optimizations": {"coreBinding": spec.optimizations.core_binding.value},
        "observability": {name: value for name, value in document["observability"].items() if name in records},
        "cleanup": {"jobAfterSeconds": KEPT_SECONDS},
    }

"""The metrics of asynchronous training that the exporter serves; part of catalogue.py."""

from __future__ import annotations

from rljob_runtime.exporter.metric import Metric

# Prompts in flight across steps (trainer.mode ColocateAsync, SeparateAsync); absent in mode Sync.
STALENESS = Metric(
    "rljob_staleness_responses",
    "gauge",
    "Responses of the last step by the number of weight versions between those that began them and those that the step "
    "updated; 0 if nothing lies between.",
    "our trainer: tag min_global_steps of each response",
    ("versions",),
)
MIXED_VERSIONS = Metric(
    "rljob_mixed_versions_ratio",
    "gauge",
    "Share of the last step's responses that more than one version of the weights generated.",
    "our trainer: tags min_global_steps and max_global_steps",
    unit="ratio",
)
QUEUE = Metric(
    "rljob_prompts_in_flight",
    "gauge",
    "Prompts in the queue after the last step by state (pending, running, finished, failure).",
    "TransferQueue: tags of the prompts",
    ("state",),
)
OLDEST_PROMPT = Metric(
    "rljob_oldest_prompt_steps",
    "gauge",
    "Steps since the oldest prompt in flight was sent to the rollout, or was sent again after a resume or a failure.",
    "TransferQueue: tags of the prompts",
)
PROMPTS = Metric(
    "rljob_prompts",
    "gauge",
    "Prompts of the run over all its attempts, as the weights of now have seen them: `fetched` from data.train, "
    "`trained`, tried again (`retried`), and `unaccounted`, which are in no place or in two and should be 0.",
    "our trainer: the ledger of prompts in each checkpoint",
    ("event",),
)
PROMPTS_DROPPED = Metric(
    "rljob_prompts_dropped",
    "gauge",
    "Prompts of the run that were given up, by reason: `stale`, `filtered` by DAPO, or `failed`.",
    "our trainer: the ledger of prompts in each checkpoint",
    ("reason",),
)

# Trainer and rollout on nodes of their own (trainer.mode SeparateAsync); absent in other modes.
ROLLOUT_REPLICAS = Metric(
    "rljob_rollout_replicas",
    "gauge",
    "Replicas at the end of the last step: those that get requests and new weights (`serving`), and those of a "
    "complete rollout (`wanted`).",
    "our trainer: replicas of the weight sync",
    ("state",),
)
TRAINER_WAIT = Metric(
    "rljob_trainer_wait_ratio",
    "gauge",
    "Share of the time in which the trainer waits for responses, in the last step (`1`) and in the attempt's last ten "
    "(`10`, from its tenth step on).",
    "verl: timing_s/gen / timing_s/step",
    ("steps",),
    "ratio",
)

ASYNC = (
    STALENESS,
    MIXED_VERSIONS,
    QUEUE,
    OLDEST_PROMPT,
    PROMPTS,
    PROMPTS_DROPPED,
    ROLLOUT_REPLICAS,
    TRAINER_WAIT,
)

"""Prepare a tracker's library before verl opens it, so that an attempt continues the run of its predecessors.

Called in the trainer's process right before `fit` creates verl's `Tracking` (verl/utils/tracking.py, 0.9.1), when the
loaded step is known. If a tracker fails here, verl opens it unprepared and reports errors in its own way. At the end,
trackers are finished here with a time limit, because verl would wait indefinitely for an unreachable one.
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob_runtime.files import run_with_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from omegaconf import DictConfig

    from rljob_runtime.contract import JobConfig

TAG = "rljob_uid"
"""Tag by which the job's run is found on an MLflow server."""
EVENTS = "events.out.tfevents.*"
FINISH_SECONDS = 30.0
"""Time for trackers to send their remaining data, while every NPU waits."""
UNFINISHED = "trackers were not finished"


def prepare(config: DictConfig, job: JobConfig, step: int) -> None:
    """Let TensorBoard discard the steps that are trained again, and let MLflow find the job's run."""
    logger = config.trainer.logger
    names = [logger] if isinstance(logger, str) else list(logger)
    for name, act in (("tensorboard", _forget_later_steps), ("mlflow", _join_run)):
        if name in names:
            try:
                act(config, job, step)
            except Exception as error:  # noqa: BLE001 - an error of a tracker must not end the run
                print(f"rljob: {name} was not prepared for the steps after {step}: {error!r}", file=sys.stderr)  # noqa: T201


def finish(logger: Any, *, failed: bool) -> None:  # noqa: ANN401 - verl's Tracking
    """Finish the trackers within a time limit. Their errors do not change the run's outcome.

    verl's task runner finishes them again in a `finally` (main_ppo.py, 0.9.1), which then returns at once.
    """
    run = _open_mlflow_run(logger)

    def end() -> None:
        try:
            logger.finish(exit_code=int(failed))
            if run is not None:
                _end_mlflow_run(run)
        except Exception as error:  # noqa: BLE001 - an error of a tracker must not end the run
            print(f"rljob: {UNFINISHED}: {error!r}", file=sys.stderr, flush=True)  # noqa: T201

    context = contextvars.copy_context()  # contains Trackio's run
    run_with_timeout(FINISH_SECONDS, lambda: context.run(end), UNFINISHED)


def _open_mlflow_run(logger: Any) -> str | None:  # noqa: ANN401 - verl's Tracking
    """Return the id of MLflow's run, which only the thread that opened it knows (mlflow/tracking/fluent.py, 3.17)."""
    if "mlflow" not in logger.logger:
        return None
    import mlflow

    run = mlflow.active_run()
    return None if run is None else str(run.info.run_id)


def _end_mlflow_run(run: str) -> None:
    import mlflow

    mlflow.MlflowClient().set_terminated(run)


def _forget_later_steps(config: DictConfig, job: JobConfig, step: int) -> None:  # noqa: ARG001 - one signature for all
    """Record a restart in the event files: TensorBoard discards earlier entries from the next step on."""
    from torch.utils.tensorboard import SummaryWriter

    folder = os.environ.get("TENSORBOARD_DIR")
    if folder and any(Path(folder).glob(EVENTS)):
        SummaryWriter(folder, purge_step=step + 1).close()


def _join_run(config: DictConfig, job: JobConfig, step: int) -> None:  # noqa: ARG001 - one signature for all
    """Find or create the job's run, and let verl open it by its id."""
    if os.environ.get("MLFLOW_RUN_ID"):
        return
    import mlflow

    uri = os.environ["MLFLOW_TRACKING_URI"]
    mlflow.set_tracking_uri(uri)
    client, project = mlflow.MlflowClient(), config.trainer.project_name
    experiment = client.get_experiment_by_name(project)
    known = experiment.experiment_id if experiment else client.create_experiment(project, _artifacts(uri))
    runs = client.search_runs([known], f"tags.{TAG} = '{job.uid}'", max_results=1)
    run = runs[0] if runs else client.create_run(known, tags={TAG: job.uid}, run_name=config.trainer.experiment_name)
    os.environ["MLFLOW_RUN_ID"] = run.info.run_id
    # MLflow does not allow changing a parameter, and verl logs all of them. A resumed attempt has different ones.
    mlflow.log_params = only_new(mlflow.log_params, frozenset(run.data.params))


def _artifacts(uri: str) -> str | None:
    """Keep artifacts beside a database in a file. A server has its own artifact store."""
    file = uri.removeprefix("sqlite:///")
    return str(Path(file).parent / "artifacts") if file != uri else None


def only_new(log_params: Callable[..., Any], known: frozenset[str]) -> Callable[..., Any]:
    """Return a `log_params` that logs only parameters that the run does not have yet."""

    @functools.wraps(log_params)
    def log(params: dict[str, Any], **options: Any) -> Any:  # noqa: ANN401 - MLflow's
        new = {name: value for name, value in params.items() if name not in known}
        return log_params(new, **options) if new else None

    return log

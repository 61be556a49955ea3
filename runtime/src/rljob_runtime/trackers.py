"""Experiment trackers of verl (`trainer.logger`): one run for a job, whatever becomes of its attempts.

The launcher sets their variables for every process of the run; what the pod sets wins. A tracker that wants a key and
has none writes to a folder, from where its run can be sent later. What needs the tracker's own library is done in the
trainer's process, by verl_plugin/tracking.py.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from rljob_runtime.contract import ExitCode, JobConfig
from rljob_runtime.outcomes import RefusedError

PACKAGES = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "swanlab": "swanlab",
    "mlflow": "mlflow",
    "clearml": "clearml",
    "trackio": "trackio",
    "rl_insight": "rl_insight",
}
"""What verl/utils/tracking.py imports for each (0.9.1)."""
KEYS = {
    "wandb": (("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"), "~/.netrc"),
    "swanlab": (("SWANLAB_API_KEY",), "~/.swanlab/.netrc"),
}
"""Variables that hold a key, and the file where a login leaves one."""
OFFLINE = {"wandb": {"WANDB_MODE": "offline"}, "swanlab": {"SWANLAB_MODE": "offline"}}
LOGGER = "trainer.logger"
FOLDER = "trackers"
RUN_ID_LENGTH = 21
"""SwanLab's ids had exactly so many small letters and digits before 0.7."""


def chosen(job: JobConfig) -> list[str]:
    """List the job's trackers."""
    value = job.overrides.get(LOGGER)
    names = [value] if isinstance(value, str) else value
    return [str(name) for name in names if name in PACKAGES] if isinstance(names, list) else []


def run_id(job: JobConfig) -> str:
    """Give the id of the job's one run."""
    return job.uid.replace("-", "").lower()[:RUN_ID_LENGTH]


def environment(job: JobConfig, spool: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Give the variables of the job's trackers, and make their folders; what the pod sets wins."""
    names = chosen(job)
    if not names:
        return {}
    home = make_home(job, spool, names)
    values: dict[str, str] = {}
    for name in names:
        values |= _variables(name, job, home)
        if name in OFFLINE and not has_key(name, environ):
            values |= OFFLINE[name]
            tell(f"{name} has no key; its run is kept in {home / name}")
    return {variable: environ.get(variable, value) for variable, value in values.items()}


def make_home(job: JobConfig, spool: Path, names: list[str]) -> Path:
    """Make the folders of the job's trackers: for all its clusters on the log volume, else in the head pod.

    A volume that fails costs what trackers keep there, never the run.
    """
    for root in [Path(job.log_path), spool] if job.log_path else [spool]:
        home = root / FOLDER / f"{job.name}-{job.uid[:5]}"
        try:
            for name in names:
                (home / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            tell(f"trackers cannot write to the log volume, and what they keep goes with the head pod: {error}")
            continue
        break
    return home


def has_key(name: str, environ: Mapping[str, str]) -> bool:
    """Tell whether a tracker can log in, or is told how to run."""
    variables, login = KEYS[name]
    mode = next(iter(OFFLINE[name]))
    return any(environ.get(variable) for variable in (*variables, mode)) or Path(login).expanduser().exists()


def require_packages(job: JobConfig) -> None:
    """Refuse a tracker that the image lacks, before anything is spent: verl imports it when all models are loaded."""
    missing = [name for name in chosen(job) if importlib.util.find_spec(PACKAGES[name]) is None]
    if missing:
        packages = " ".join(PACKAGES[name].replace("_", "-") for name in missing)
        raise RefusedError(
            ExitCode.BAD_CONFIG,
            "TrackerMissing",
            f"observability.trackers: this image has no {', '.join(missing)}; build one with `pip install {packages}`, "
            "or leave it out",
        )


def _variables(name: str, job: JobConfig, home: Path) -> dict[str, str]:
    own = str(home / name)
    return {
        # `allow` begins the run if it does not exist yet.
        "wandb": {"WANDB_DIR": own, "WANDB_RUN_ID": run_id(job), "WANDB_RESUME": "allow"},
        "swanlab": {"SWANLAB_LOG_DIR": own, "SWANLAB_RUN_ID": run_id(job), "SWANLAB_RESUME": "allow"},
        "tensorboard": {"TENSORBOARD_DIR": own},
        "mlflow": {"MLFLOW_TRACKING_URI": f"sqlite:///{own}/runs.db"},
        "trackio": {"TRACKIO_DIR": own},
    }.get(name, {})


def tell(message: str) -> None:
    """Print into the driver's log."""
    print(f"rljob: {message}", file=sys.stderr, flush=True)  # noqa: T201

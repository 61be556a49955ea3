"""Experiment trackers of verl (`trainer.logger`): one run per job, across all its attempts.

The launcher sets their variables for every process of the run; variables of the pod take precedence. A tracker that
needs a key and has none writes to a folder, from which its run can be uploaded later. verl_plugin/trainer/tracking.py
does what needs the tracker's own library, in the trainer's process.
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
"""Package that verl/utils/tracking.py imports for each tracker (0.9.1)."""
KEYS = {
    "wandb": (("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"), "~/.netrc"),
    "swanlab": (("SWANLAB_API_KEY",), "~/.swanlab/.netrc"),
}
"""Variables that contain a key, and the file in which a login stores one."""
OFFLINE = {"wandb": {"WANDB_MODE": "offline"}, "swanlab": {"SWANLAB_MODE": "offline"}}
LOGGER = "trainer.logger"
FOLDER = "trackers"
RUN_ID_LENGTH = 21
"""SwanLab's ids had exactly this many lowercase letters and digits before 0.7."""


def chosen(job: JobConfig) -> list[str]:
    """Return the job's trackers."""
    value = job.overrides.get(LOGGER)
    names = [value] if isinstance(value, str) else value
    return [str(name) for name in names if name in PACKAGES] if isinstance(names, list) else []


def run_id(job: JobConfig) -> str:
    """Return the id of the job's single run."""
    return job.uid.replace("-", "").lower()[:RUN_ID_LENGTH]


def environment(job: JobConfig, spool: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the job's trackers and create their folders. Variables of the pod take precedence."""
    names = chosen(job)
    if not names:
        return {}
    home = make_home(job, spool, names)
    values: dict[str, str] = {}
    for name in names:
        values |= _variables(name, job, home)
        if name in OFFLINE and not has_key(name, environ):
            values |= OFFLINE[name]
            log(f"{name} has no key; its run is stored in {home / name}")
    return {variable: environ.get(variable, value) for variable, value in values.items()}


def make_home(job: JobConfig, spool: Path, names: list[str]) -> Path:
    """Create the folders of the job's trackers: on the log volume for all its clusters, otherwise in the head pod.

    A volume that fails only loses the trackers' files; the run continues.
    """
    for root in [Path(job.log_path), spool] if job.log_path else [spool]:
        home = root / FOLDER / f"{job.name}-{job.uid[:5]}"
        try:
            for name in names:
                (home / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log(f"trackers cannot write to the log volume; their files will be lost with the head pod: {error}")
            continue
        break
    return home


def has_key(name: str, environ: Mapping[str, str]) -> bool:
    """Return whether a tracker can log in or has an explicit mode."""
    variables, login = KEYS[name]
    mode = next(iter(OFFLINE[name]))
    return any(environ.get(variable) for variable in (*variables, mode)) or Path(login).expanduser().exists()


def require_packages(job: JobConfig) -> None:
    """Refuse a tracker that the image lacks, before resources are used: verl imports it only after loading models."""
    missing = [name for name in chosen(job) if importlib.util.find_spec(PACKAGES[name]) is None]
    if missing:
        packages = " ".join(PACKAGES[name].replace("_", "-") for name in missing)
        raise RefusedError(
            ExitCode.BAD_CONFIG,
            "TrackerMissing",
            f"observability.trackers: this image lacks {', '.join(missing)}; build an image with "
            f"`pip install {packages}`, or remove the tracker",
        )


def _variables(name: str, job: JobConfig, home: Path) -> dict[str, str]:
    own = str(home / name)
    return {
        # `allow` creates the run if it does not exist yet.
        "wandb": {"WANDB_DIR": own, "WANDB_RUN_ID": run_id(job), "WANDB_RESUME": "allow"},
        "swanlab": {"SWANLAB_LOG_DIR": own, "SWANLAB_RUN_ID": run_id(job), "SWANLAB_RESUME": "allow"},
        "tensorboard": {"TENSORBOARD_DIR": own},
        "mlflow": {"MLFLOW_TRACKING_URI": f"sqlite:///{own}/runs.db"},
        "trackio": {"TRACKIO_DIR": own},
    }.get(name, {})


def log(message: str) -> None:
    """Print to the driver's log."""
    print(f"rljob: {message}", file=sys.stderr, flush=True)  # noqa: T201

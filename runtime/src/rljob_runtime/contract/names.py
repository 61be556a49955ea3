"""Names that operator and runtime share: environment variables, ports, files and folders.

Names of environment variables are part of the API of the image. They change only with CONTRACT_VERSION.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from rljob_runtime.contract.job import Role

IMAGE_SHELL_FILE = "/opt/ascend/environment.sh"
"""Value of BASH_ENV in the Ascend image: a script that sets CANN's environment for every shell."""


ROLE_RESOURCES: Mapping[Role, str] = {
    Role.TRAINER: "rljob_trainer",
    Role.ROLLOUT: "rljob_rollout",
    Role.JUDGE: "rljob_judge",
}
"""Ray resources that pin actors to nodes of a role, where a job has several groups: a node has 1 of its own."""
INJECTED_FOLDER = "/rljob"
"""Where the runtime that an init container has copied is mounted. Its folder `code` belongs on PYTHONPATH."""

UNAUTHENTICATED_RAY_MINIMUM = "2.46.0"
"""The oldest Ray without token authentication that a job may ask for: of the releases that the images of the source
documents pin, and with which tests/compat/test_ray.py was run."""
RAY_WITHOUT_TOKENS = "RayWithoutTokens"
"""The launcher's reason to refuse a Ray that ignores the cluster's token."""


class AttemptVariable(enum.StrEnum):
    """Variables in the submission's `runtime_env.env_vars`: data of one attempt."""

    ATTEMPT = "RLJOB_ATTEMPT"
    SUBMISSION_ID = "RLJOB_SUBMISSION_ID"
    HEAD_POD_UID = "RLJOB_HEAD_POD_UID"
    JOB_DIGEST = "RLJOB_JOB_DIGEST"
    CHECKPOINT_STEP = "RLJOB_CHECKPOINT_STEP"
    """The last step that the job is known to have in its checkpoint folder; absent if none is known."""
    LOSSES = "RLJOB_LOSSES"
    """Attempts of the job that ended with a failure so far; 0 if absent."""
    HELD_DEVICE_SECONDS = "RLJOB_HELD_DEVICE_SECONDS"
    """Device-seconds that the job has held so far; 0 if absent."""


class PodVariable(enum.StrEnum):
    """Variables of the pods. They are the same for every attempt of a cluster generation."""

    POD_UID = "RLJOB_POD_UID"
    """From the downward API."""
    CONFIG = "RLJOB_CONFIG"
    """Path of job.json."""
    SPOOL = "RLJOB_SPOOL"
    """Folder of the spool, an emptyDir shared by the head's containers."""
    TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name that Ray and KubeRay use, not a secret
    """Bearer token for Ray's dashboard and the exporter's API."""
    POD_IP = "RLJOB_POD_IP"
    """From the downward API. The host's address if the pod uses the host network."""
    NODE_NAME = "RLJOB_NODE_NAME"
    """From the downward API. Failures name it so that the operator can avoid the node."""
    METRICS_PORT = "RLJOB_METRICS_PORT"
    API_PORT = "RLJOB_API_PORT"
    """Ports of the exporter on the host network, where pods share them. Default: the ports in `Port`."""
    RAY_JOBS_PORT = "RLJOB_RAY_JOBS_PORT"
    """Port on 127.0.0.1 of Ray's job API, which the exporter then passes on. Only with a Ray that cannot check a token.
    """
    CODE_USERNAME = "RLJOB_CODE_USERNAME"
    CODE_PASSWORD = "RLJOB_CODE_PASSWORD"  # noqa: S105 - a name
    """Credentials of a private Git repository, only in the container that fetches the code."""
    EXPORT_TOKEN = "RLJOB_EXPORT_TOKEN"  # noqa: S105 - a name
    """Access token of a model hub, only in the container that exports."""


class Port(enum.IntEnum):
    """Ports of the exporter sidecar. They avoid Ray's 6379, 8000, 8080, 8265, 10001 and 52365."""

    METRICS = 8090
    """`/metrics`, without a token."""
    API = 8091
    """`/v1/progress` and `/v1/stop`, with the token; for a Ray without tokens also its job API below `/api/jobs/`."""


class SpoolFile(enum.StrEnum):
    """Files in the spool. `attempt-<n>/` contains those of attempt n."""

    CURRENT = "current.json"
    """Progress of the current attempt, replaced atomically."""
    STOP = "stop.json"
    """A StopRequest, in the attempt's folder."""
    BEGUN = "begun"
    """Empty file in the attempt's folder: the attempt's first step has started."""
    STEPS = "steps.jsonl"
    """One line per step with all metrics, in the attempt's folder."""
    LENGTHS = "lengths.jsonl"
    """Lengths of the newest step's responses, in the attempt's folder; `rljob plan rollout --trace` reads them."""
    SAMPLES = "samples"
    """Folder with a file for each recorded step, in the attempt's folder (`contract.samples`)."""
    BINDING = "binding.json"
    """A CoreBinding with the observed processes, in the attempt's folder. A separate file because the launcher writes
    it while the trainer writes current.json."""
    START = "start.json"
    """A StartProgress, in the attempt's folder. A separate file because threads of the trainer write it while its loop
    writes current.json."""
    ROLLOUT_TARGETS = "rollout-targets.yml"
    """Prometheus scrape file written by verl: addresses of vLLM's own metrics."""
    QUEUE_TARGET = "queue-target"
    """Address of TransferQueue's own metrics, `host:port`, while it serves them."""


class StepMetric(enum.StrEnum):
    """Metrics in a line of steps.jsonl that are read outside the runtime, verl's and ours."""

    REWARD = "critic/score/mean"
    STEP_SECONDS = "timing_s/step"
    STEP_TPS_PER_CARD = "rljob/tokens_per_second/step/prompt_and_response/card"
    FIRST_DP_IDLE = "rljob/first_dp_idle_ratio"
    CLUSTER_IDLE = "rljob/cluster_idle_ratio"


def exporter_port(environ: Mapping[str, str], port: Port) -> int:
    """Return the port on which the exporter of this job listens. Raises ValueError for an invalid port."""
    name = {Port.METRICS: PodVariable.METRICS_PORT, Port.API: PodVariable.API_PORT}[port]
    number = int(environ.get(name) or port)
    if not 0 < number < 2**16:
        raise ValueError(f"{name.value}={number}: expected a port from 1 to 65535")
    return number


@dataclass(frozen=True)
class HeadPaths:
    """Mount paths in the head and worker containers."""

    config_folder: str = "/etc/rljob"
    config: str = "/etc/rljob/job.json"
    spool: str = "/var/run/rljob"


def head_paths() -> HeadPaths:
    """Return the mount paths."""
    return HeadPaths()

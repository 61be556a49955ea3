"""Names that both sides must agree on: environment variables, ports, files and folders.

Names of environment variables are part of the API of the image: they change only with CONTRACT_VERSION.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

IMAGE_SHELL_FILE = "/opt/ascend/environment.sh"
"""What the Ascend image's own BASH_ENV names: CANN's environment, for every shell."""


class AttemptVariable(enum.StrEnum):
    """Set by the submission's `runtime_env.env_vars`: data of one attempt."""

    ATTEMPT = "RLJOB_ATTEMPT"
    SUBMISSION_ID = "RLJOB_SUBMISSION_ID"
    HEAD_POD_UID = "RLJOB_HEAD_POD_UID"
    JOB_DIGEST = "RLJOB_JOB_DIGEST"
    CHECKPOINT_STEP = "RLJOB_CHECKPOINT_STEP"
    """The last step that the job is known to have in its checkpoint folder; absent: none is known."""


class PodVariable(enum.StrEnum):
    """Set on the pods: the same for every attempt of a cluster generation."""

    POD_UID = "RLJOB_POD_UID"
    """From the downward API."""
    CONFIG = "RLJOB_CONFIG"
    """Path of job.json."""
    SPOOL = "RLJOB_SPOOL"
    """Folder of the spool: an emptyDir that the head's containers share."""
    TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name that Ray and KubeRay use, not a secret
    """Bearer token of Ray's dashboard and of the exporter's API."""
    POD_IP = "RLJOB_POD_IP"
    """From the downward API; on the host's network it is the host's."""
    NODE_NAME = "RLJOB_NODE_NAME"
    """From the downward API: what failures name, and what the operator can avoid."""
    METRICS_PORT = "RLJOB_METRICS_PORT"
    API_PORT = "RLJOB_API_PORT"
    """Ports of the exporter on the node's network, where pods share them; absent: those of `Port`."""
    CODE_USERNAME = "RLJOB_CODE_USERNAME"
    CODE_PASSWORD = "RLJOB_CODE_PASSWORD"  # noqa: S105 - a name
    """Credentials of a private Git repository, in the container that fetches the code only."""


class Port(enum.IntEnum):
    """Ports of the exporter sidecar, clear of Ray's 6379, 8000, 8080, 8265, 10001 and 52365."""

    METRICS = 8090
    """`/metrics`, without token."""
    API = 8091
    """`/v1/progress`, `/v1/stop`, with token."""


class SpoolFile(enum.StrEnum):
    """Files in the spool; `attempt-<n>/` holds those of attempt n."""

    CURRENT = "current.json"
    """Progress of the current attempt, replaced atomically."""
    STOP = "stop.json"
    """A StopRequest, in the attempt's folder."""
    BEGUN = "begun"
    """Empty: the attempt's first step has begun; in the attempt's folder."""
    STEPS = "steps.jsonl"
    """One line a step with every metric, in the attempt's folder."""
    BINDING = "binding.json"
    """A CoreBinding with what was seen of processes, in the attempt's folder: the launcher writes it while the trainer
    writes current.json."""
    ROLLOUT_TARGETS = "rollout-targets.yml"
    """Prometheus scrape file that verl writes: addresses of vLLM's own metrics."""
    QUEUE_TARGET = "queue-target"
    """Address of TransferQueue's own metrics, `host:port`, while it serves some."""


class StepMetric(enum.StrEnum):
    """Metrics of a line of steps.jsonl that are read outside of the runtime; verl's own and ours."""

    REWARD = "critic/score/mean"
    STEP_SECONDS = "timing_s/step"
    STEP_TPS_PER_CARD = "rljob/tokens_per_second/step/prompt_and_response/card"
    FIRST_DP_IDLE = "rljob/first_dp_idle_ratio"
    CLUSTER_IDLE = "rljob/cluster_idle_ratio"


def exporter_port(environ: Mapping[str, str], port: Port) -> int:
    """Give the port that the exporter of this job listens on; raises ValueError for what is no port."""
    name = {Port.METRICS: PodVariable.METRICS_PORT, Port.API: PodVariable.API_PORT}[port]
    number = int(environ.get(name) or port)
    if not 0 < number < 2**16:
        raise ValueError(f"{name.value} is {number}; give a port")
    return number


@dataclass(frozen=True)
class HeadPaths:
    """Where things are mounted in the head and worker containers."""

    config_folder: str = "/etc/rljob"
    config: str = "/etc/rljob/job.json"
    spool: str = "/var/run/rljob"


def head_paths() -> HeadPaths:
    """Give the mount points."""
    return HeadPaths()

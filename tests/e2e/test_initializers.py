"""Model, data set and conversion by initializers in a real cluster: a pod is killed in mid-download, and it continues.

The hub is a pod that runs the mirror of the runtime's tests. The job requests more NPUs than the node has, so that only
its head pod runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import quickstart, runs
from tests.kube import Kube, KubectlError, Manifest, condition, wait_for

pytestmark = pytest.mark.e2e

NAME = "downloads"
IMAGE = quickstart.rljob()["spec"]["runtime"]["image"]
"""Has torch, safetensors and pyarrow."""
MIRROR = (Path(__file__).parents[2] / "runtime/tests/hub_mirror.py").read_text()
SERVE = """
import io, os, random
import pyarrow as pa
from pyarrow import parquet

def rows(split):
    out, made = io.BytesIO(), [{"question": f"1 + {n}?", "answer": f"#### {n + 1}"} for n in range(8)]
    parquet.write_table(pa.Table.from_pylist(made), out)
    return {f"main/{split}-00000-of-00001.parquet": out.getvalue()}

def log(self, code="-", size="-"):
    # In one write: print writes each argument by itself, and lines of two threads mix.
    os.write(1, f"{int(code)} {self.path} {self.headers.get('Range')}\\n".encode())

_Handler.log_request = log
weights = random.Random(1).randbytes(100 * CHUNK)
files = {"config.json": b"{}", "model.safetensors": weights, **rows("train"), **rows("test")}
with serving(Mirror(files, pause_seconds=0.4), ("0.0.0.0", 8000)):
    threading.Event().wait()
"""
QUANTISE = """
import json, pathlib, torch
from safetensors.torch import save_file
folder = pathlib.Path("/data/downloads/fp8")
folder.mkdir(parents=True, exist_ok=True)
for n in range(4):
    value = torch.full((200, 130), float(n + 1)).to(torch.float8_e4m3fn)
    scale = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    save_file({f"w{n}.weight": value, f"w{n}.weight_scale_inv": scale}, folder / f"model-{n}.safetensors")
settings = {"quant_method": "fp8", "weight_block_size": [128, 128]}
(folder / "config.json").write_text(json.dumps({"quantization_config": settings}))
"""
CHECK = """
import json
from safetensors.torch import load_file
index = json.load(open("/data/downloads/bf16/model.safetensors.index.json"))["weight_map"]
found = [load_file(f"/data/downloads/bf16/{name}")[tensor] for tensor, name in sorted(index.items())]
print([[float(w[0, 0]), float(w[0, 129]), float(w[199, 0]), float(w[199, 129])] for w in found], found[0].dtype)
"""


@pytest.fixture
def hub(kube: Kube) -> Iterator[str]:
    container = {
        "name": "hub",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", MIRROR + SERVE],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hub"}, "spec": spec})
    kube.run("wait", "pod/hub", "--for=condition=Ready", "--timeout=120s", seconds=150)
    yield f"http://{(kube.get('pod', 'hub') or {})['status']['podIP']}:8000"
    kube.delete("rljob", NAME)
    kube.delete("pod", "hub")


def job(hub: str, **model: str) -> Manifest:
    def of_hub(name: str, kind: str, **download: str) -> Manifest:
        return {"name": name, "type": kind, "image": IMAGE, "download": {"endpoint": hub, **download}}

    conversion = {"from": "/data/downloads/fp8", "to": "/data/downloads/bf16", "pods": 2}
    template = {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": quickstart.CLAIM}}],
        "volumeMounts": [{"name": "data", "mountPath": quickstart.MOUNT}],
    }
    first = {"repository": "Qwen/Tiny", "to": "/data/downloads/model"} | model
    fields = quickstart.WAITING | {
        "workerGroups__0__template": template,
        "initializers": [
            of_hub("model", "Model", **first),
            of_hub("prompts", "Dataset", dataset="GSM8K", to="/data/downloads/gsm8k"),
            {"name": "quantise", "image": IMAGE, "command": ["python", "-c", QUANTISE]},
            {"name": "bf16", "type": "Conversion", "image": IMAGE, "conversion": conversion},
        ],
    }
    return runs.variant(NAME, **fields)


def starts(kube: Kube) -> list[int]:
    """Return at which bytes the hub was asked for the weights."""
    lines = re.findall(r"^20\d \S*/model.safetensors (?:bytes=(\d+)-|None)$", kube.run("logs", "hub"), re.MULTILINE)
    return [int(start or 0) for start in lines]


def pod_of(kube: Kube, initializer: str) -> Manifest | None:
    found = kube.find("pods", f"rljob.dev/job={NAME},rljob.dev/initializer={initializer}")
    return next((pod for pod in found if "deletionTimestamp" not in pod["metadata"]), None)


def state(kube: Kube) -> Manifest:
    return condition(kube.get("rljob", NAME), "Initialized") or {}


def test_a_killed_download_goes_on_and_everything_is_made_before_npus_are_held(kube: Kube, hub: str) -> None:
    kube.apply(job(hub))
    wait_for("progress in the condition", lambda: re.search(r"[1-9]\d? %\)", str(state(kube).get("message"))), 120)
    pod = pod_of(kube, "model")
    assert pod is not None
    kube.run("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    kube.run("wait", f"rljob/{NAME}", "--for=condition=Initialized", "--timeout=300s", seconds=330)
    first, *later = starts(kube)
    assert first == 0, kube.run("logs", "hub")
    assert later
    assert all(start > 0 for start in later)
    found = kube.find("jobs", f"rljob.dev/job={NAME},rljob.dev/initializer=bf16")
    assert [(each["spec"]["completionMode"], each["status"]["succeeded"]) for each in found] == [("Indexed", 2)]

    def listed() -> str | None:
        heads = kube.find("pods", f"rljob.dev/job={NAME},ray.io/node-type=head")
        try:
            return kube.run("exec", heads[0]["metadata"]["name"], "-c", "ray-head", "--", "ls", "/data/downloads/gsm8k")
        except (KubectlError, IndexError):
            return None

    assert wait_for("the head", listed, 180).split() == ["test.parquet", "train.parquet"]
    kube.delete("rljob", NAME)


def test_what_exists_is_skipped_and_its_values_are_right(kube: Kube, hub: str) -> None:
    again = job(hub)
    again["spec"]["initializers"] += [{"name": "check", "image": IMAGE, "command": ["python", "-c", CHECK]}]
    kube.apply(again)
    kube.run("wait", f"rljob/{NAME}", "--for=condition=Initialized", "--timeout=200s", seconds=230)
    message = str(state(kube).get("message"))
    # The hub has another address, so it is another request: what is verified is not fetched again.
    assert starts(kube) == [], message
    values = [[n, 2 * n, 4 * n, 8 * n] for n in (1.0, 2.0, 3.0, 4.0)]
    (checked,) = kube.find("pods", f"rljob.dev/job={NAME},rljob.dev/initializer=check")
    assert kube.run("logs", checked["metadata"]["name"]).strip() == f"{values} torch.bfloat16"
    kube.delete("rljob", NAME)


def test_a_model_that_is_not_there_ends_the_job_at_once(kube: Kube, hub: str) -> None:
    kube.apply(job(hub, repository="Qwen/Absent", to="/data/downloads/absent"))
    kube.run("wait", f"rljob/{NAME}", "--for=condition=Finished", "--timeout=120s", seconds=150)
    status = (kube.get("rljob", NAME) or {})["status"]
    assert (status["state"], status["reason"]) == ("Failed", "InitializerFailed")
    assert "HTTP 404 Not Found; is the name right" in status["message"]
    found = kube.find("pods", f"rljob.dev/job={NAME},rljob.dev/initializer=model")
    assert len(found) == 1

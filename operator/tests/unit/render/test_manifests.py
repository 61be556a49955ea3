"""Content of the manifests beyond the golden files: each option in its place, and nothing that was not requested."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import IDENTITY, Json, config, group, saving, small_spec, snapshot, typed

from rljob.api.recipes import RecipeLayer, RecipeOrigin
from rljob.api.v1alpha1 import RecipeKind
from rljob.render import configmap, pods
from rljob.render.accelerators import BUILT_IN
from rljob.render.device_access import NO_DEVICES
from rljob.render.initializer import build_initializer, initializers
from rljob.render.raycluster import build_raycluster, build_token_secret
from rljob.render.stopping import SHELL_TEXT
from rljob_runtime.contract import IMAGE_SHELL_FILE

TEMPLATE = {
    "cpu": "10",
    "memory": "64Gi",
    "sharedMemory": "8Gi",
    "env": [{"name": "A", "value": "b"}, {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "volumes": [{"name": "models", "hostPath": {"path": "/models"}}, {"name": "scratch", "emptyDir": {}}],
    "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    "labels": {"rljob.dev/job": "stolen", "team": "a"},
    "nodeSelector": {"zone": "z"},
    "tolerations": [{"key": "npu"}],
}
SPEC = small_spec(
    group({"template": TEMPLATE})
    | {
        "code": {"type": "ConfigMap", "configMap": {"name": "code"}},
        "scheduling": {"queueName": "team"},
        "runtime": {"imagePullSecrets": ["pull"], "serviceAccountName": "trainer"},
        "initializers": [{"name": "prepare", "command": ["true"], "image": "other:1"}],
    }
)


NEVER: Json = {"runtime": {"injection": "Never"}}


def render(spec: Json) -> Json:
    return build_raycluster(IDENTITY, typed(spec), 1, "digest")


def worker(spec: Json) -> Any:  # noqa: ANN401 - JSON
    return render(spec)["spec"]["workerGroupSpecs"][0]["template"]


def head(spec: Json) -> Any:  # noqa: ANN401 - JSON
    return render(spec)["spec"]["headGroupSpec"]["template"]


def test_a_queued_cluster_is_born_suspended() -> None:
    assert render(SPEC)["spec"]["suspend"] is True
    assert render(SPEC)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert "suspend" not in render(small_spec())["spec"]


def test_the_head_holds_no_npu_and_each_worker_all_of_its_node() -> None:
    assert all("huawei.com/Ascend910" not in c["resources"]["requests"] for c in head(SPEC)["spec"]["containers"])
    resources = worker(SPEC)["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"huawei.com/Ascend910": "2", "memory": "64Gi", "cpu": "10"}
    assert resources["requests"] == {"huawei.com/Ascend910": "2", "memory": "64Gi", "cpu": "10"}


def test_the_ray_start_params_contain_the_npus() -> None:
    params = render(SPEC)["spec"]["workerGroupSpecs"][0]["rayStartParams"]
    assert json.loads(json.loads(params["resources"])) == {"NPU": 2}
    assert params["num-cpus"] == "16"
    on_npu = render(small_spec(group({"devicesPerNode": 16}) | {"accelerator": {"class": "atlas-a3-superpod"}}))
    assert "num-cpus" not in on_npu["spec"]["workerGroupSpecs"][0]["rayStartParams"]


def test_a_template_reaches_the_pods_but_never_our_own_labels() -> None:
    assert worker(SPEC)["metadata"]["labels"]["rljob.dev/job"] == "sums"
    assert worker(SPEC)["metadata"]["labels"]["team"] == "a"
    assert worker(SPEC)["spec"]["nodeSelector"] == {"zone": "z"}
    assert worker(SPEC)["spec"]["tolerations"] == [{"key": "npu", "operator": "Exists"}]
    env = worker(SPEC)["spec"]["containers"][0]["env"]
    assert {"name": "A", "value": "b"} in env
    assert {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in env


def test_head_workers_and_initializers_see_the_same_volumes() -> None:
    initializer = build_initializer(IDENTITY, typed(SPEC), typed(SPEC).initializers[0])["spec"]["template"]
    for template in (head(SPEC), worker(SPEC), initializer):
        names = [volume["name"] for volume in template["spec"]["volumes"]]
        assert {"models", "scratch", "rljob-code"} <= set(names)
        assert len(names) == len(set(names))
        paths = [mount["mountPath"] for mount in template["spec"]["containers"][0]["volumeMounts"]]
        assert {"/models", "/code"} <= set(paths)
        assert len(paths) == len(set(paths))


def test_a_folder_of_the_node_must_be_there() -> None:
    volumes = pods.user_volumes(typed(SPEC).worker_groups[0].template)
    assert volumes[0] == {"name": "models", "hostPath": {"path": "/models", "type": "Directory"}}


def test_shared_memory_is_mounted_where_asked_for() -> None:
    memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    assert memory in worker(SPEC)["spec"]["volumes"]
    assert memory not in head(SPEC)["spec"]["volumes"]


def test_pull_secrets_and_account_stand_in_every_pod() -> None:
    for template in (head(SPEC), worker(SPEC)):
        assert template["spec"]["imagePullSecrets"] == [{"name": "pull"}]
        assert template["spec"]["serviceAccountName"] == "trainer"
        assert template["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in worker(small_spec())["spec"]


@pytest.mark.parametrize(("image", "expected"), [("other:1", "other:1"), (None, typed().runtime.image)])
def test_an_initializer_runs_its_own_image_or_that_of_the_job(image: str | None, expected: str) -> None:
    initializer = typed(SPEC).initializers[0].model_copy(update={"image": image})
    made = build_initializer(IDENTITY, typed(SPEC), initializer)
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == expected


def test_no_plan_holds_a_secrets_data() -> None:
    secret = build_token_secret(IDENTITY, 1)
    assert "data" not in secret
    assert secret["metadata"]["name"] == render(SPEC)["metadata"]["name"]


def test_what_is_frozen_reads_back_as_it_was() -> None:
    assert configmap.read_snapshot(snapshot(SPEC, refresh="2"), BUILT_IN) == configmap.Snapshot(typed(SPEC), (), "2")
    frozen = config(SPEC)
    digest = frozen["metadata"]["annotations"]["rljob.dev/job-digest"]
    assert configmap.read_raycluster(frozen) == build_raycluster(IDENTITY, typed(SPEC), 1, digest)
    assert frozen["immutable"] is True


def test_a_snapshot_with_a_field_that_the_api_had_once_can_still_be_read() -> None:
    layer = RecipeLayer(RecipeOrigin(RecipeKind("RLRecipe"), "base", "u", 1), {"trainer": {"steps": 7}}, ())
    made = snapshot(SPEC, layer)
    spec, recipes = json.loads(made["data"]["spec.json"]), json.loads(made["data"]["recipes.json"])
    for document in (spec, recipes[0]["template"]):
        document.setdefault("cleanup", {})["workersAfterSeconds"] = 3
    made["data"] |= {"spec.json": json.dumps(spec), "recipes.json": json.dumps(recipes)}
    found = configmap.read_snapshot(made, BUILT_IN)
    assert found.spec == typed(SPEC)
    assert found.recipes[0].template == {"trainer": {"steps": 7}, "cleanup": {}}


def test_a_snapshot_of_a_later_version_can_still_be_read() -> None:
    made = snapshot(SPEC)
    spec = json.loads(made["data"]["spec.json"])
    for place in (spec, spec["trainer"], spec["workerGroups"][0]["template"], spec["initializers"][0]):
        place["moonlight"] = {"phase": "full"}
    made["data"]["spec.json"] = json.dumps(spec)
    assert configmap.read_snapshot(made, BUILT_IN).spec == typed(SPEC)
    made["data"]["spec.json"] = json.dumps(spec | {"trainer": {"steps": "many", "moonlight": 1}})
    with pytest.raises(ValueError, match=r"trainer\.steps"):
        configmap.read_snapshot(made, BUILT_IN)


FULL = {
    **TEMPLATE,
    "envFrom": [{"prefix": "X_", "configMapRef": {"name": "settings"}}],
    "affinity": {"nodeAffinity": {"a": 1}, "podAffinity": {"b": 2}},
    "securityContext": {"runAsUser": 0, "fsGroup": 7, "runAsNonRoot": False},
    "tolerations": [{"key": "gone", "effect": "NoExecute", "tolerationSeconds": 60}],
    "annotations": {"a": "b"},
    "initContainers": [{"name": "first", "image": "i"}],
    "sidecars": [{"name": "proxy", "image": "p"}],
}
SERVICE = {"name": "code-sandbox", "image": "sandbox:1", "port": 9000, "args": ["--safe"], "memory": "1Gi"}
BRINGS: Json = {
    "runtime": {"runtimeClassName": "ascend", "serviceAccountName": "trainer"},
    "scheduling": {"priorityClassName": "high"},
    "services": [SERVICE, {"name": "judge", "image": "judge:1", "port": 9001, "command": ["run"]}],
    "secretRefs": [{"name": "hub"}, {"name": "wandb", "items": [{"key": "api-key", "env": "WANDB_API_KEY"}]}],
    "network": {"mode": "Host"},
}
EVERYTHING = small_spec(group({"template": FULL}) | BRINGS)
GIT = {"url": "https://git.example/rewards", "revision": "a" * 40, "subPath": "math", "secretRef": {"name": "robot"}}


def initializer_of(spec: Json, change: Json | None = None) -> Any:  # noqa: ANN401 - JSON
    kind = typed(spec | {"initializers": [{"name": "make", "command": ["run", "it"]} | (change or {})]})
    return build_initializer(IDENTITY, kind, kind.initializers[0])["spec"]


def test_placement_identity_and_network_reach_the_pods() -> None:
    pod = worker(EVERYTHING)["spec"]
    assert pod["affinity"] == FULL["affinity"]
    assert pod["securityContext"] == {"runAsUser": 0, "fsGroup": 7, "runAsNonRoot": False}
    assert pod["tolerations"][0]["tolerationSeconds"] == 60
    assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("high", "ascend")
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert worker(EVERYTHING)["metadata"]["annotations"] == {"a": "b"}


def test_the_head_needs_no_runtime_for_npus() -> None:
    pod = head(EVERYTHING)["spec"]
    assert "runtimeClassName" not in pod
    assert pod["priorityClassName"] == "high"
    assert pod["hostNetwork"] is True
    assert "affinity" not in pod


def test_nothing_is_set_where_nothing_was_asked_for() -> None:
    always = {"restartPolicy", "terminationGracePeriodSeconds", "automountServiceAccountToken", "volumes", "containers"}
    asked = always | {"nodeSelector", "tolerations"}
    assert set(worker(small_spec(NEVER))["spec"]) == asked
    assert "envFrom" not in worker(small_spec())["spec"]["containers"][0]


def test_helpers_start_in_order_and_run_on_beside_ray() -> None:
    started = worker(EVERYTHING)["spec"]["initContainers"]
    assert [c["name"] for c in started] == ["rljob-runtime", "proxy", "first", "code-sandbox", "judge"]
    assert [container.get("restartPolicy") for container in started] == [None, "Always", None, "Always", "Always"]
    of_head = head(EVERYTHING)["spec"]["initContainers"]
    assert [c["name"] for c in of_head] == ["exporter", "rljob-runtime", "code-sandbox", "judge"]


def test_an_exporter_that_ends_is_started_again_and_outlives_ray() -> None:
    pod = head(small_spec(NEVER))["spec"]
    assert [container["name"] for container in pod["containers"]] == ["ray-head"]
    assert [(c["name"], c["restartPolicy"]) for c in pod["initContainers"]] == [("exporter", "Always")]
    assert "initContainers" not in worker(small_spec(NEVER))["spec"]


def test_a_service_is_waited_for_and_found_at_localhost() -> None:
    sandbox, judge = worker(EVERYTHING)["spec"]["initContainers"][3:]
    assert sandbox["startupProbe"]["tcpSocket"] == {"port": 9000}
    assert (sandbox["args"], judge["command"]) == (["--safe"], ["run"])
    assert "command" not in sandbox
    requests, limits = {"memory": "1Gi", "cpu": "100m"}, {"memory": "1Gi", "cpu": "4"}
    assert sandbox["resources"] == {"requests": requests, "limits": limits}
    assert [mount["mountPath"] for mount in sandbox["volumeMounts"]] == ["/models"]
    for template in (head(EVERYTHING), worker(EVERYTHING)):
        env = template["spec"]["containers"][0]["env"]
        assert {"name": "RLJOB_SERVICE_CODE_SANDBOX_URL", "value": "http://localhost:9000"} in env


def test_secrets_become_variables_of_ray_and_of_initializers_and_nothing_else() -> None:
    key = {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "api-key"}}}
    hub = {"secretRef": {"name": "hub"}}
    settings = {"prefix": "X_", "configMapRef": {"name": "settings"}}
    initializer = initializer_of(EVERYTHING)["template"]["spec"]["containers"][0]
    for container in (worker(EVERYTHING)["spec"]["containers"][0], initializer):
        assert key in container["env"]
        assert container["envFrom"] == [settings, hub]
    on_head = head(EVERYTHING)["spec"]
    assert on_head["containers"][0]["envFrom"] == [hub]
    assert "envFrom" not in on_head["initContainers"][0]
    assert key not in on_head["initContainers"][0]["env"]
    assert "wandb" not in config(EVERYTHING)["data"]["job.json"]


def test_a_name_stands_once_and_the_users_own_variable_wins() -> None:
    spec = small_spec(group({"template": {"env": [{"name": "WANDB_API_KEY", "value": "mine"}]}}) | BRINGS)
    env = worker(spec)["spec"]["containers"][0]["env"]
    assert [v.get("value") for v in env if v["name"] == "WANDB_API_KEY"] == ["mine"]


def test_an_initializer_runs_as_the_workers_do_where_they_could() -> None:
    made = initializer_of(EVERYTHING, {"cpu": "2", "memory": "4Gi", "env": [{"name": "A", "value": "own"}]})
    pod = made["template"]["spec"]
    assert pod["affinity"] == {"nodeAffinity": {"a": 1}}
    assert pod["securityContext"]["fsGroup"] == 7
    assert (pod["priorityClassName"], pod["serviceAccountName"]) == ("high", "trainer")
    container = pod["containers"][0]
    asked = {"cpu": "2", "memory": "4Gi"}
    assert container["resources"] == {"requests": asked, "limits": {"cpu": "4", "memory": "4Gi"}}
    assert [v.get("value") for v in container["env"] if v["name"] == "A"] == ["own"]
    assert container["command"] == ["run", "it"]
    assert "podFailurePolicy" not in made


def run_command(initializer: Json, *, folder: Path) -> tuple[int, str]:
    command = initializer["template"]["spec"]["containers"][0]["command"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


def test_an_initializer_whose_work_is_done_is_skipped(tmp_path: Path) -> None:
    done = tmp_path / "a model's $(rm -rf .) folder"
    spec = {"command": ["sh", "-c", 'echo "made $0"; exit 3', "two words"], "creates": str(done)}
    assert run_command(initializer_of(small_spec(), spec), folder=tmp_path) == (3, "made two words\n")
    done.mkdir()
    assert run_command(initializer_of(small_spec(), spec), folder=tmp_path) == (
        0,
        f"skipped: {done} is there already\n",
    )


@pytest.mark.parametrize(
    ("code", "volume", "mount"),
    [
        ({"type": "ConfigMap", "configMap": {"name": "c"}}, {"configMap": {"name": "sums-0a1b2-code"}}, {}),
        (
            {"type": "PVC", "persistentVolumeClaim": {"claimName": "home", "subPath": "a/b"}},
            {"persistentVolumeClaim": {"claimName": "home"}},
            {"subPath": "a/b"},
        ),
        (
            {"type": "PVC", "persistentVolumeClaim": {"claimName": "home"}},
            {"persistentVolumeClaim": {"claimName": "home"}},
            {},
        ),
        ({"type": "Git", "git": GIT}, {"emptyDir": {}}, {}),
    ],
    ids=["ConfigMap", "PVC", "root of a PVC", "Git"],
)
def test_code_is_mounted_read_only_everywhere(code: Json, volume: Json, mount: Json) -> None:
    spec = small_spec({"code": code})
    for pod in (worker(spec)["spec"], head(spec)["spec"], initializer_of(spec)["template"]["spec"]):
        assert {"name": "rljob-code", **volume} in pod["volumes"]
        wanted = {"name": "rljob-code", "mountPath": "/code", "readOnly": True, **mount}
        assert wanted in pod["containers"][0]["volumeMounts"]


def test_the_commit_is_fetched_first_and_its_secret_is_on_no_command_line() -> None:
    spec = small_spec({"code": {"type": "Git", "git": GIT}, "services": [SERVICE]})
    made = initializer_of(spec)
    for pod in (worker(spec)["spec"], head(spec)["spec"], made["template"]["spec"]):
        others = (
            container for container in pod["initContainers"] if container["name"] not in ("exporter", "rljob-runtime")
        )
        fetch = next(others)
        assert fetch["name"] == "fetch-code"
        assert fetch["volumeMounts"] == [{"name": "rljob-code", "mountPath": "/code"}]
        assert fetch["command"][3:] == [
            *("fetch-code", "--url", GIT["url"], "--revision", GIT["revision"]),
            *("--folder", "/code", "--seconds", "600", "--sub-path", "math"),
        ]
        *variables, _ = fetch["env"]
        references = [variable["valueFrom"]["secretKeyRef"] for variable in variables]
        assert references == [
            {"name": "robot", "key": "username", "optional": True},
            {"name": "robot", "key": "password", "optional": False},
        ]
    assert made["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [64]


def test_public_code_needs_no_secret() -> None:
    public = {"type": "Git", "git": {"url": GIT["url"], "revision": GIT["revision"]}}
    fetch = worker(small_spec({"code": public}))["spec"]["initContainers"][0]
    assert fetch["env"] == [NO_DEVICES]
    assert "--sub-path" not in fetch["command"]
    assert [each.name for each in initializers(typed(small_spec({"code": public})))] == ["fetch-code"]
    assert initializers(typed()) == []


def test_fetching_the_code_never_hides_an_initializer_of_the_user() -> None:
    own = [{"name": "fetch-code", "command": ["mine"]}, {"name": "rljob-fetch-code", "command": ["mine"]}]
    spec = small_spec({"code": {"type": "Git", "git": GIT}, "initializers": own})
    names = [each.name for each in initializers(typed(spec))]
    assert names == ["rljob-rljob-fetch-code", "fetch-code", "rljob-fetch-code"]


def test_patches_are_laid_last_each_over_its_own_pods() -> None:
    patch = {
        "head": {"schedulerName": "volcano"},
        "workers": {"containers": [{"name": "ray-worker", "env": [{"name": "A", "value": "patched"}]}]},
    }
    spec = small_spec(group({"template": TEMPLATE}) | {"podSpecPatch": patch})
    assert head(spec)["spec"]["schedulerName"] == "volcano"
    assert "schedulerName" not in worker(spec)["spec"]
    env = worker(spec)["spec"]["containers"][0]["env"]
    assert [variable["value"] for variable in env if variable["name"] == "A"] == ["patched"]


STOPPING = saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "stop": {"graceSeconds": 120}})


def test_whoever_deletes_a_pod_gives_the_run_its_time_to_save() -> None:
    spec = small_spec(STOPPING | {"stop": {"graceSeconds": 120, "mode": "AbortRollout"}})
    python = ["env", "PYTHONPATH=/rljob/code", "python"]
    stop = [*python, "-m", "rljob_runtime", "stop", "--mode", "AbortRollout", "--wait", "120"]
    (ray,), (exporter, _) = head(spec)["spec"]["containers"], head(spec)["spec"]["initContainers"]
    assert ray["lifecycle"] == {"preStop": {"exec": {"command": stop}}}
    assert exporter["command"][-2:] == ["--outlive-seconds", "120"]
    hooks = worker(spec)["spec"]["containers"][0]["lifecycle"]
    assert hooks["preStop"] == {"exec": {"command": [*stop, "--head-file", "/var/run/rljob/head"]}}
    for template in (head(spec), worker(spec)):
        assert template["spec"]["terminationGracePeriodSeconds"] == 150


SHELL = {"name": "BASH_ENV", "value": "/etc/rljob/bash-env"}
WAIT_FOR_HEAD = "while true; do if ray health-check --address a-head-svc:6379; then break; fi; sleep 5; done"
"""The script of KubeRay's init container."""


def mounted_files(template: Json) -> list[str]:
    config = next(volume for volume in template["spec"]["volumes"] if volume["name"] == "rljob-config")
    return [item["path"] for item in config["configMap"]["items"]]


def test_a_worker_that_waits_for_its_head_hears_that_it_is_deleted() -> None:
    spec = small_spec(STOPPING | NEVER)
    assert SHELL in worker(spec)["spec"]["containers"][0]["env"]
    assert SHELL not in head(spec)["spec"]["containers"][0]["env"]
    data = config(spec)["data"]
    assert mounted_files(worker(spec)) == ["job.json", "bash-env"]
    assert set(mounted_files(worker(spec))) <= set(data)
    mine = group({"template": {**TEMPLATE, "env": [{"name": "BASH_ENV", "value": "/mine"}]}})
    assert SHELL not in worker(small_spec(STOPPING | mine | NEVER))["spec"]["containers"][0]["env"]
    assert mounted_files(worker(small_spec(NEVER))) == ["job.json"]


def shell(tmp_path: Path, script: str, *, ray: str = "") -> subprocess.Popen[str]:
    """Start a worker's bash in an image whose own file for shells sets up CANN, with a given ray program."""
    image, file, program = tmp_path / "image.sh", tmp_path / "bash-env", tmp_path / "ray"
    image.write_text("export CANN=sourced")
    file.write_text(SHELL_TEXT.replace(IMAGE_SHELL_FILE, str(image)))
    program.write_text(f"#!/bin/sh\n{ray}\n")
    program.chmod(0o755)
    return subprocess.Popen(
        ["/bin/bash", "-c", "--", script],
        env={"BASH_ENV": str(file), "PATH": f"{tmp_path}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("ray", ["echo asked; exec sleep 120", "echo asked; exit 1"], ids=["asking", "sleeping"])
def test_a_worker_that_waits_for_its_head_goes_at_once_when_it_is_deleted(tmp_path: Path, ray: str) -> None:
    script = WAIT_FOR_HEAD.replace("sleep 5", "echo nobody; sleep 120")
    with shell(tmp_path, script, ray=ray) as process:
        assert process.stdout is not None
        try:
            told = "asked" if "sleep" in ray else "nobody"
            assert any(line.strip() == told for line in process.stdout)
            process.terminate()
            assert process.wait(60) == 143
        finally:
            with contextlib.suppress(ProcessLookupError):  # it may have ended before its child started
                os.killpg(process.pid, signal.SIGKILL)


def test_a_worker_whose_head_answers_goes_on(tmp_path: Path) -> None:
    with shell(tmp_path, f"{WAIT_FOR_HEAD}; echo ready", ray="exit 0") as process:
        assert process.communicate(timeout=30)[0] == "ready\n"
    assert process.returncode == 0


def test_the_shell_that_starts_ray_has_the_environment_of_the_image_and_no_trap(tmp_path: Path) -> None:
    script = 'trap -p TERM; type -t sleep; ray start; echo "$CANN"'
    with shell(tmp_path, script, ray='echo "$CANN $*"') as process:
        assert process.communicate(timeout=30)[0] == "file\nsourced start\nsourced\n"


def test_an_image_without_a_file_for_shells_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "bash-env"
    file.write_text(SHELL_TEXT.replace(IMAGE_SHELL_FILE, str(tmp_path / "none")))
    command = ["/bin/bash", "-euc", "--", "echo on"]
    done = subprocess.run(command, env={"BASH_ENV": str(file)}, capture_output=True, text=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == ("on\n", "")


@pytest.mark.parametrize("change", [{}, STOPPING | {"stop": {"mode": "Immediate", "graceSeconds": 120}}])
def test_where_nothing_would_be_saved_nothing_is_waited_for(change: Json) -> None:
    for template in (head(small_spec(change)), worker(small_spec(change))):
        assert template["spec"]["terminationGracePeriodSeconds"] == 30
        assert all("lifecycle" not in container for container in template["spec"]["containers"])
    assert head(small_spec(change))["spec"]["initContainers"][0]["command"][-1] == "exporter"


@pytest.mark.parametrize(("name", "found"), [("localhost", True), ("no-such-host.invalid", False)])
def test_a_worker_notes_the_heads_address_if_it_finds_one(tmp_path: Path, name: str, *, found: bool) -> None:
    note = worker(small_spec(STOPPING))["spec"]["containers"][0]["lifecycle"]["postStart"]["exec"]["command"]
    here = [word.replace("/var/run/rljob", str(tmp_path)) for word in note]
    assert subprocess.run(here, env={"FQ_RAY_IP": name, "PATH": os.environ["PATH"]}, check=False).returncode == 0
    assert bool((tmp_path / "head").read_text()) is found

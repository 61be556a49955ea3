"""The jobs of examples/cann-recipes: each runs its script's command, flag by flag, in pods with its script's variables.

What differs has a reason in `upstream.command_recipes.differences`. Only committed tables and manifests are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import EXAMPLES, Json, validate
from schema_check import violations

from rljob.api.crd import build_rljob_crd
from rljob.cli.main import main
from upstream.command_recipes.__main__ import read
from upstream.command_recipes.differences import (
    LEFT_OUT,
    SHARED,
    TOOLS,
    Value,
    added_flags,
    added_variables,
    flag_value,
    saves,
    variable_value,
)
from upstream.command_recipes.notes import FLAGS, SWITCHES
from upstream.command_recipes.record import record
from upstream.command_recipes.shapes import SHAPES
from upstream.command_recipes.sources import BY_NAME, COPIED
from upstream.command_recipes.table import load_facts

FACTS = load_facts()
FOLDER = EXAMPLES / "cann-recipes"
SPEC = build_rljob_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
SCRIPT = """
export SWITCH=1
BATCH=$((4 * SP))
python3 -m verl.trainer.main_ppo data.train_batch_size=${BATCH} data.train_files="$(pwd)/train.parquet" $@ >> log 2>&1
"""


def documents(name: str) -> list[Json]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def spec_of(name: str) -> Json:
    """Return the spec of a manifest's job."""
    spec: Json = documents(name)[0]["spec"]
    return spec


def command_of(name: str) -> list[str]:
    """Return the arguments of a manifest's command."""
    args: list[str] = spec_of(name)["launcher"]["command"]["args"]
    return args


def flags_of(name: str) -> dict[str, str]:
    """Return the flags of a manifest's command."""
    return {key: text for key, _, text in (argument.partition("=") for argument in command_of(name)[3:])}


def variables_of(template: Json) -> dict[str, str]:
    """Return the variables of a pod template."""
    return {entry["name"]: entry["value"] for entry in template["env"]}


def test_every_script_has_a_table_of_its_commit_and_a_manifest() -> None:
    recorded = {name: (facts.commit, facts.path) for name, facts in FACTS.items()}
    assert recorded == {name: (source.commit, source.path) for name, source in BY_NAME.items()}
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(FACTS) == set(SHAPES)


@pytest.mark.parametrize("name", FACTS)
def test_a_command_has_the_flags_of_the_script_in_their_order(name: str) -> None:
    source, facts, found = BY_NAME[name], FACTS[name], flags_of(name)
    added = added_flags(facts)
    assert command_of(name)[:3] == ["python3", "-m", facts.module]
    assert list(found) == [*facts.flags, *added]
    explained = {key: flag_value(source, key, text) for key, text in facts.flags.items()} | added
    assert _unexplained(found, dict(facts.flags), explained) == {}


@pytest.mark.parametrize("name", FACTS)
def test_the_pods_have_the_variables_of_the_script(name: str) -> None:
    source, facts, spec = BY_NAME[name], FACTS[name], spec_of(name)
    found = variables_of(spec["workerGroups"][0]["template"])
    assert found == variables_of(spec["head"]["template"])
    added = added_variables(source, facts)
    kept = {key: text for key, text in facts.environment.items() if key not in LEFT_OUT}
    assert set(found) == set(kept) | set(added)
    assert not set(kept) & set(added)
    explained = {key: variable_value(source, key, text) or Value("") for key, text in kept.items()} | added
    assert _unexplained(found, kept, explained) == {}


def _unexplained(found: dict[str, str], script: dict[str, str], explained: dict[str, Value]) -> dict[str, str]:
    """Return what differs from the script without a reason, or is not the value that has the reason."""
    return {
        key: text
        for key, text in found.items()
        if text != script.get(key) and (text != explained[key].text or not explained[key].reason)
    }


@pytest.mark.parametrize("name", FACTS)
def test_the_job_has_the_nodes_timeouts_and_code_of_the_script(name: str) -> None:
    source, facts, spec = BY_NAME[name], FACTS[name], spec_of(name)
    group, hccl = spec["workerGroups"][0], spec.get("network", {}).get("hccl", {})
    assert str(group["nodes"]) == facts.flags["trainer.nnodes"]
    assert str(group["devicesPerNode"]) == facts.flags["trainer.n_gpus_per_node"]
    fields = {"connectTimeoutSeconds": "HCCL_CONNECT_TIMEOUT", "execTimeoutSeconds": "HCCL_EXEC_TIMEOUT"}
    stated = {field: facts.environment[key] for field, key in fields.items() if key in facts.environment}
    assert {field: str(seconds) for field, seconds in hccl.items()} == stated
    git = spec.get("code", {}).get("git")
    assert (git and (git["revision"], git["subPath"])) == ((facts.commit, source.code) if source.code else None)
    assert ("checkpoint" in spec, "checkpoint" in spec["launcher"]["command"]) == (saves(facts), saves(facts))


@pytest.mark.parametrize("name", FACTS)
def test_every_path_is_in_a_mount_or_in_the_image(name: str) -> None:
    source, spec = BY_NAME[name], spec_of(name)
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["workerGroups"][0]["template"]["volumeMounts"]}
    paths = [text.strip("[']") for text in flags_of(name).values() if text.startswith(("/", "['/"))]
    known = (*mounts, "/workspace/cann-recipes-train", *(("/code",) if source.code else ()))
    assert [path for path in paths if not path.startswith(tuple(f"{folder}/" for folder in known))] == []
    assert spec["launcher"]["command"]["workingDir"] in mounts
    assert mounts[SHARED] == "shared"
    tools = {Path(path).name for path in paths if path.startswith(f"{TOOLS}/")}
    data = [set(document["data"]) for document in documents(name) if document["kind"] == "ConfigMap"]
    assert data == ([tools] if tools else [])


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.sandbox])
def test_a_sandbox_is_reached_at_the_port_of_its_service(name: str) -> None:
    service = spec_of(name)["services"][0]
    port = f"localhost:{service['port']}/", f"0.0.0.0:{service['port']}/"
    assert {"name": "PORT", "value": str(service["port"])} in service["env"]
    configs = [text for document in documents(name)[1:] for text in document["data"].values()]
    urls = [text for text in (*flags_of(name).values(), *configs) if "http://" in text]
    assert urls
    assert [text for text in urls if not any(address in text for address in port)] == []


@pytest.mark.parametrize("name", FACTS)
def test_no_command_or_variable_keeps_a_place_of_the_script(name: str) -> None:
    texts = [*command_of(name), *variables_of(spec_of(name)["head"]["template"]).values()]
    assert [text for text in texts if "$" in text or "/path/to" in text or "your_" in text] == []


@pytest.mark.parametrize("name", FACTS)
def test_a_manifest_is_accepted_by_schema_and_operator(name: str) -> None:
    spec = spec_of(name)
    assert list(violations(SPEC, spec)) == []
    assert validate(name, spec).violations == ()


@pytest.mark.parametrize("name", FACTS)
def test_a_manifest_renders_its_command_and_its_variables(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "--file", str(FOLDER / f"{name}.yaml")]) == 0
    rendered = list(yaml.safe_load_all(capsys.readouterr().out))
    assert rendered[-1]["command"]["args"] == command_of(name)
    cluster = next(document for document in rendered if document.get("kind") == "RayCluster")["spec"]
    wanted = variables_of(spec_of(name)["head"]["template"]).items()
    for pod in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert wanted <= {(entry["name"], entry.get("value")) for entry in _ray_container(pod)["env"]}


@pytest.mark.parametrize("name", FACTS)
def test_the_pods_have_the_timeouts_of_the_script(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    timeouts = ("HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT")
    wanted = {(key, FACTS[name].environment[key]) for key in timeouts if key in FACTS[name].environment}
    assert main(["render", "--file", str(FOLDER / f"{name}.yaml")]) == 0
    rendered = list(yaml.safe_load_all(capsys.readouterr().out))
    cluster = next(document for document in rendered if document.get("kind") == "RayCluster")["spec"]
    for pod in cluster["workerGroupSpecs"]:
        assert wanted <= {(entry["name"], entry.get("value")) for entry in _ray_container(pod)["env"]}


@pytest.mark.parametrize("name", [name for name, facts in FACTS.items() if not saves(facts)])
def test_a_job_that_saves_nothing_accepts_what_the_guide_adds(name: str) -> None:
    text = (EXAMPLES.parent / "docs/guides/cann-recipes.md").read_text()
    addition = yaml.safe_load(text.rpartition("```yaml")[2].partition("```")[0])["spec"]
    spec = spec_of(name)
    spec["launcher"]["command"] |= addition["launcher"]["command"]
    spec["checkpoint"] = addition["checkpoint"]
    kept, (first, *added) = command_of(name), addition["launcher"]["command"]["args"]
    assert first == "..."
    changed = tuple(argument.partition("=")[0] + "=" for argument in added)
    assert changed == ("trainer.save_freq=", "trainer.default_local_dir=")
    args = [*(argument for argument in kept if not argument.startswith(changed)), *added]
    spec["launcher"]["command"]["args"] = args
    assert list(violations(SPEC, spec)) == []
    assert validate(name, spec).violations == ()


def _ray_container(pod: Json) -> dict[str, Any]:
    container: dict[str, Any] = pod["template"]["spec"]["containers"][0]
    return container


def _commented(name: str) -> Iterator[str]:
    """Yield the variables and flags that have a comment right above them."""
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        if above.lstrip().startswith("# ") and line.lstrip().startswith("- "):
            yield line.lstrip(" -'\"").removeprefix("{name: ").replace(",", "=").partition("=")[0]


@pytest.mark.parametrize("name", FACTS)
def test_a_switch_is_explained_where_it_is_set(name: str) -> None:
    switches = set(SWITCHES) & set(variables_of(spec_of(name)["head"]["template"]))
    assert switches <= set(_commented(name))


def test_what_is_explained_or_left_out_is_in_a_script() -> None:
    names = {name for facts in FACTS.values() for name in facts.environment}
    assert set(LEFT_OUT) | set(SWITCHES) <= names
    commented = {key for name in FACTS for key in _commented(name)}
    assert {key for key, _ in FLAGS} <= commented


def test_a_script_is_recorded_without_running_it() -> None:
    flags = {"data.train_batch_size": "8", "data.train_files": "$PWD/train.parquet"}
    assert record(SCRIPT, ("export EARLIER=2\nray start --head\n",), (("SP", "2"),)) == (
        "verl.trainer.main_ppo",
        flags,
        {"EARLIER": "2", "SWITCH": "1"},
    )


def test_a_script_that_trains_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 commands that train"):
        record(SCRIPT + SCRIPT)


def test_a_copy_with_lines_missing_is_refused(tmp_path: Path) -> None:
    commit, path = next(iter(COPIED))
    copy = tmp_path / commit / path
    copy.parent.mkdir(parents=True)
    copy.write_text(SCRIPT)
    with pytest.raises(SystemExit, match="copy it whole"):
        read(tmp_path, tmp_path, commit, path)

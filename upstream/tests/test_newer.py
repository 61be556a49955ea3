"""`make upstream`: what it makes of versions and releases. Whom it asks, the network, is left out."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from rljob.launchers.verl.rows import ROLLOUT
from rljob.launchers.verl.table import TABLE
from rljob_runtime.planning import verl
from scripts.ascend_image import locked
from upstream.ascend_names import METHODS_FILE, SYMBOL_FILES, VARIABLES_FILE
from upstream.newer.__main__ import ask, run
from upstream.newer.moved import SECTION, as_names, keys_moved, names_moved
from upstream.newer.pins import IN_LOCKS, MODULES, Ask, Pin, pins
from upstream.newer.releases import OURS, Release, composed, verl_moved, vllm_ascend_moved
from upstream.newer.versions import Answer, newest, versions_of_go, versions_of_pip
from upstream.verl_names import CONFIG, ENGINES

LOCKS = Path(__file__).resolve().parents[2] / "requirements"


def test_what_pip_and_go_print_is_read() -> None:
    text = "verl (0.9.1)\nAvailable versions: 0.9.1, 0.9.0, 0.8.0rc1\n  INSTALLED: 0.1\n"
    assert versions_of_pip(text) == ["0.9.1", "0.9.0", "0.8.0rc1"]
    assert versions_of_pip("nothing") == []
    assert versions_of_go("k8s.io/kubernetes v1.36.1 v1.36.3\n") == ["v1.36.1", "v1.36.3"]
    assert versions_of_go("k8s.io/kubernetes\n") == versions_of_go("") == []


@pytest.mark.parametrize(
    ("pin", "versions", "in_line", "overall"),
    [
        ("0.23.0", ["0.24.0", "0.23.0.post1", "0.23.1rc1", "0.22.9"], "0.23.0.post1", "0.24.0"),
        ("0.9.1", ["0.9.0", "0.10.0.dev1"], "0.9.1", "0.9.1"),
        ("v1.36.2", ["v1.36.1", "v1.37.0", "v1.38.0-alpha.1"], "v1.36.2", "v1.37.0"),
        ("1.2.0", ["not a version", "1.10.0"], "1.2.0", "1.10.0"),
    ],
)
def test_the_newest_release_of_a_line_counts_its_post_releases_and_no_candidates(
    pin: str, versions: list[str], in_line: str, overall: str
) -> None:
    assert newest(pin, versions) == Answer(in_line, overall)


def test_a_pin_that_is_no_version_is_said() -> None:
    assert newest("core_r0.16.0", ["1.0"]) == Answer(problem="core_r0.16.0 is not a version")


def test_pins_are_read_from_where_they_are_used() -> None:
    found = {(pin.name, pin.place): pin for pin in pins()}
    place = "requirements/runtime-ascend-aarch64.txt"
    assert found["verl", place] == Pin("verl", locked(LOCKS / "runtime-ascend-aarch64.txt")["verl"], place, Ask.INDEX)
    assert {pin.name for pin in pins()} >= {name for names in IN_LOCKS.values() for name in names} | set(
        MODULES.values()
    )
    assert all(pin.version for pin in pins())
    assert {pin.ask for pin in pins()} == set(Ask)


def test_what_nobody_can_be_asked_about_is_said() -> None:
    assert ask(Pin("CANN", "9.1.0", "here", Ask.NOBODY)) == Answer(problem="cannot be asked from here")


def test_a_command_without_an_answer_is_a_text() -> None:
    assert run(("rljob-no-such-program",), 5) == "rljob-no-such-program is not installed"
    assert run(("sleep", "5"), 0.1) == "sleep gave no answer in 0.1 s"
    assert run((sys.executable, "-c", "raise SystemExit(3)"), 30) == f"{Path(sys.executable).name} ended with 3"
    done = run((sys.executable, "-c", "print(1)"), 30)
    assert not isinstance(done, str)
    assert done.stdout == "1\n"


def test_names_are_compared_by_group() -> None:
    old = as_names({"a.py": "One Two", "b.py": "Three"})
    new = as_names({"a.py": ["One", "Four"], "c.py": ["Five"]})
    assert list(names_moved("classes", old, new)) == [
        "classes in a.py, gone: Two",
        "classes in a.py, new: Four",
        "classes in b.py, gone: Three",
        "classes in c.py, new: Five",
    ]
    assert list(names_moved("texts", as_names(("a b",)), as_names(["a b"]))) == []
    assert list(names_moved("words", as_names("a b"), as_names("a"))) == ["words, gone: b"]


def test_keys_that_we_set_come_first_and_changed_defaults_are_shown() -> None:
    old = {"a": 1, "b": SECTION, "b.c": None, "d": True, "e": 1}
    new = {"a": 2, "b": {}, "b.c": None, "d": 1, "f": 1}
    assert list(keys_moved(old, new, frozenset({"e"}))) == [
        "GONE, and set by us: e",
        "default of a: 1, now 2",
        "default of b: a section, now {}",
        "default of d: true, now 1",
        "keys, new: f",
    ]
    assert list(keys_moved(old, {}, frozenset({"a"})))[-1] == "keys, gone: b, b.c, d, e"


def vllm_ascend(folder: Path) -> Path:
    """Return the source of a release in which hardly anything is left."""
    (folder / "PKG-INFO").write_text("Name: vllm_ascend\nVersion: 9.9\nRequires-Dist: torch==9\n")
    for name in (*SYMBOL_FILES, METHODS_FILE):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("class NPUWorker:\n    def wake_up(self): ...\n")
    (folder / VARIABLES_FILE).write_text("env_variables = {'VLLM_ASCEND_NEW': 1}\n")
    copy = folder / "vllm_ascend.egg-info"
    copy.mkdir()
    (copy / "PKG-INFO").write_text("Requires-Dist: wrong\n")
    return folder


def test_what_moved_in_vllm_ascend_is_read_from_a_folder(tmp_path: Path) -> None:
    release = Release(vllm_ascend(tmp_path))
    assert release.metadata()["Version"] == "9.9"
    lines = list(vllm_ascend_moved(release))
    assert "environment variables, new: VLLM_ASCEND_NEW" in lines
    assert "requirements, new: torch==9" in lines
    assert any(line.startswith("options of additional_config, gone: ") and "weight_nz_mode" in line for line in lines)
    assert any(line.startswith("classes and functions in vllm_ascend/worker/worker.py, gone: ") for line in lines)


def test_a_folder_without_metadata_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="neither METADATA nor PKG-INFO"):
        Release(tmp_path).metadata()


def test_what_moved_in_verl_is_read_from_a_wheel(tmp_path: Path) -> None:
    gone = f"{ROLLOUT}.router_config_path"
    assert gone in OURS
    path = tmp_path / "verl-9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for suffix, file in ENGINES.items():
            wheel.writestr(CONFIG.format(file), yaml.safe_dump(nested(megatron=suffix == "MEGATRON", without=gone)))
        for source in {row.source for row in TABLE} - {TABLE[0].source}:
            wheel.writestr(f"verl/{source}", "")
    assert list(verl_moved(Release(path))) == [
        f"FSDP2: GONE, and set by us: {gone}",
        f"Megatron: GONE, and set by us: {gone}",
        f"cited by a row of the launcher, and gone: verl/{TABLE[0].source}",
    ]


def nested(*, megatron: bool, without: str) -> dict[str, object]:
    """Return the committed keys as the document that verl's wheel has, without one of them."""
    document: dict[str, object] = {}
    for key, value in verl.keys(megatron=megatron).items():
        node = document
        *parents, last = key.split(".")
        for part in parents:
            inner = node.setdefault(part, {})
            assert isinstance(inner, dict)
            node = inner
        if key != without and not isinstance(value, verl.Section):
            node[last] = value
    return document


def test_a_section_of_a_configuration_has_no_default() -> None:
    assert composed({"a": {"b": "x y", "c": {}}, "d": None}) == {"a": SECTION, "a.b": "x y", "a.c": {}, "d": None}

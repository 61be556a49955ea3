"""An image is built again when its inputs change, and only its missing blobs are imported."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import hostconfig, oci
from tests.cluster.errors import ClusterError
from tests.cluster.images import TABLE, Recipe, key_of, recipe_of_folder, slug


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY a /\n")
    (tmp_path / "a").write_text("1")
    return recipe_of_folder(tmp_path, "x.local/a:1", ["COLOUR=red"])


def test_an_unchanged_folder_gives_the_same_key(recipe: Recipe) -> None:
    assert key_of(recipe) == key_of(recipe)


@pytest.mark.parametrize("changed", ["a", "Dockerfile", "new"])
def test_a_changed_file_gives_another_key(recipe: Recipe, changed: str) -> None:
    before = key_of(recipe)
    (recipe.context / changed).write_text("changed")
    assert key_of(recipe) != before


def test_another_build_argument_gives_another_key(recipe: Recipe) -> None:
    assert key_of(replace(recipe, arguments=(("COLOUR", "blue"),))) != key_of(recipe)


def test_an_executable_bit_gives_another_key(recipe: Recipe) -> None:
    before = key_of(recipe)
    (recipe.context / "a").chmod(0o755)
    assert key_of(recipe) != before


def test_caches_of_tools_decide_nothing(recipe: Recipe) -> None:
    before = key_of(recipe)
    (recipe.context / "__pycache__").mkdir()
    (recipe.context / "__pycache__" / "a.pyc").write_text("x")
    assert key_of(recipe) == before


def test_another_base_gives_another_key(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(recipe)
    monkeypatch.setenv("RLJOB_BASE_IMAGE", "example.invalid/python:3.11")
    assert key_of(recipe) != before


def test_a_folder_without_a_dockerfile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="folder with a Dockerfile"):
        recipe_of_folder(tmp_path, "x:1", [])


def test_every_base_named_in_the_table_is_in_it() -> None:
    assert all(not entry.base or entry.base in TABLE for entry in TABLE.values())


def test_tags_become_file_names() -> None:
    assert slug("rljob.local/runtime:cpu") == "rljob.local-runtime-cpu"


def test_a_written_image_leaves_out_what_the_reader_has(tmp_path: Path) -> None:
    binary = tmp_path / "pause"
    binary.write_bytes(b"\x7fELF")
    image = oci.binary_image("x.local/pause:1", binary, "/pause", architecture="amd64")
    layer = image.blobs[1].digest
    stream = io.BytesIO()

    oci.write_tar(image, stream, without={layer})

    with tarfile.open(fileobj=io.BytesIO(stream.getvalue())) as tar:
        names = tar.getnames()
        index = json.loads((tar.extractfile("index.json") or io.BytesIO()).read())
    assert f"blobs/{layer.replace(':', '/')}" not in names
    assert f"blobs/{image.manifest.digest.replace(':', '/')}" in names
    assert index["manifests"][0]["annotations"][oci.NAME_ANNOTATION] == "x.local/pause:1"


def test_the_same_binary_always_makes_the_same_image(tmp_path: Path) -> None:
    binary = tmp_path / "pause"
    binary.write_bytes(b"\x7fELF")
    first = oci.binary_image("x:1", binary, "/pause", architecture="amd64")
    binary.touch()
    assert oci.binary_image("x:1", binary, "/pause", architecture="amd64") == first


def test_the_environment_wins_over_files_in_pip_s_settings() -> None:
    listed = "\n".join(
        [
            ":env:.index-url='https://mirror.invalid/simple'",
            "global.index-url='https://other.invalid/simple'",
            ":env:.default-timeout='180'",
            "install.user='true'",
        ]
    )
    options = hostconfig.pip_options(listed)
    assert options == {"index-url": "https://mirror.invalid/simple", "timeout": "180"}
    assert "index-url = https://mirror.invalid/simple" in hostconfig.pip_file(options)
    assert 'index-url = "https://mirror.invalid/simple"' in hostconfig.uv_file(options)

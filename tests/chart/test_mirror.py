"""The commands of a mirror, carried out with programs that record what they are asked."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from scripts.release import charts, mirror
from scripts.release.images import MACHINES, OWN, images_text, read_names
from scripts.site.shell import unknown_options
from tests.chart.helm import ROOT, binary

REGISTRY, VERSION = "registry.example.com/rl", "9.8.7"


@pytest.mark.parametrize(
    ("tool", "command", "scheme"),
    [
        ("skopeo", "skopeo copy --all", "docker://"),
        ("crane", "crane copy", ""),
        ("oras", "oras copy --recursive", ""),
        ("cosign", "cosign copy", ""),
    ],
)
def test_a_mirror_gets_every_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: str, command: str, scheme: str
) -> None:
    names = read_names(images_text(REGISTRY, VERSION))
    (tmp_path / "images.txt").write_text(images_text(REGISTRY, VERSION))
    words = ["--to", "mirror.example.com/rl", "--images", str(tmp_path / "images.txt"), "--only", "images"]
    assert mirror.main([*words, "--tool", tool]) == 0
    title, *printed, use = capsys.readouterr().out.splitlines()
    assert (title, use) == ("# images", "# helm install: --set image.registry=mirror.example.com/rl/rl")
    assert len(printed) == len(names)
    operator = f"{scheme}{REGISTRY}/operator:{VERSION} {scheme}mirror.example.com/rl/rl/operator:{VERSION}"
    assert f"{command} {operator}" in printed


@pytest.mark.parametrize("words", [[], ["--only", "images"], ["--only", "charts"]])
def test_images_of_a_checkout_are_refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        mirror.main(["--to", "m.example.com", *words])
    assert refused.value.code == 2
    answer = capsys.readouterr()
    assert "rljob.local/operator:dev is an image of a checkout" in answer.err
    assert "name the images.txt of a release by --images" in answer.err
    assert answer.out == ""


def test_a_mirror_gets_the_charts_of_the_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "images.txt").write_text(images_text(REGISTRY, VERSION))
    words = ["--to", "m.example.com", "--images", str(tmp_path / "images.txt"), "--folder", str(tmp_path / "new")]
    assert mirror.main([*words, "--only", "charts"]) == 0
    text = capsys.readouterr().out
    folder = tmp_path / "new/charts"
    (kuberay,) = re.findall(r"kuberay/operator:v(\S+)", (ROOT / "deploy/images.txt").read_text())
    assert text.splitlines()[1:-1] == [
        f"mkdir -p {folder}",
        f"helm pull oci://{REGISTRY}/charts/rljob-operator --version {VERSION} --destination {folder}",
        f"helm pull kuberay-operator --repo {charts.KUBERAY_REPOSITORY} --version {kuberay} --destination {folder}",
    ]
    assert unknown_options(binary(), text) == []


def test_the_guide_names_images_of_a_release() -> None:
    page = (ROOT / "docs/guides/air-gapped.md").read_text()
    ((registry, version),) = set(re.findall(r"scripts\.release\.images (\S+) (\S+) images\.txt", page))
    (mirrored,) = re.findall(r"image\.registry=(\S+)", page)
    (prepulled,) = re.findall(r"prePull\.images=\{(\S+)\}", page)
    names = [
        mirror.target_of(name, "registry.example.com/mirror") for name in read_names(images_text(registry, version))
    ]
    assert f"{mirrored}/{prepulled}" in names
    assert f"{mirrored}/operator:{version}" in names
    assert f"rljob-operator-{version}.tgz" in page
    (kuberay,) = re.findall(r"kuberay-operator-(\S+)\.tgz", page)
    assert any(name.endswith(f"/kuberay/operator:v{kuberay}") for name in names)


def test_a_mirror_continues_after_an_image_that_cannot_be_copied(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images.txt").write_text("a.example.com/one:1  # first\nb.example.com/two:2\n")
    tool = tmp_path / "crane"
    tool.write_text('#!/bin/sh\necho "$@" >> ' + str(tmp_path / "seen") + '\ncase "$2" in *one:1) exit 1;; esac\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = ["--to", "m.example.com", "--images", str(tmp_path / "images.txt"), "--only", "images"]
    assert mirror.main([*words, "--tool", "crane", "--run"]) == 1
    assert (tmp_path / "seen").read_text().splitlines() == [
        "copy a.example.com/one:1 m.example.com/one:1",
        "copy b.example.com/two:2 m.example.com/two:2",
    ]
    assert "not copied: a.example.com/one:1" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--only", "images"], "skopeo is not on PATH; install it, or choose another by --tool"),
        (["--only", "models"], "uvx is not on PATH; install uv, which has it"),
    ],
)
def test_a_program_that_a_mirror_lacks_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], hint: str
) -> None:
    (tmp_path / "images.txt").write_text("a.example.com/one:1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mirror.main(["--to", "m.example.com", "--images", str(tmp_path / "images.txt"), *words, "--run"]) == 1
    assert hint in capsys.readouterr().err


def test_a_mirror_gets_every_lock_for_every_platform(capsys: pytest.CaptureFixture[str]) -> None:
    assert mirror.main(["--to", "m.example.com", "--only", "packages", "--folder", "/srv/mirror"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    found: dict[str, set[str]] = {}
    for words in lines:
        if words[0] != "pip":
            assert words[1:3] == ["-m", "scripts.release.sdist"]
            assert words[4] == "/srv/mirror/packages"
            found[Path(words[3]).stem] = set()
            continue
        assert words[-2:] == ["--dest", "/srv/mirror/packages"]
        assert {"--require-hashes", "--no-deps"} <= set(words)
        file = words[words.index("-r") + 1]
        assert (ROOT / file).exists()
        machines = {machine for machine in MACHINES.values() if f"manylinux_2_28_{machine}" in words}
        assert len(machines) == 1
        found.setdefault(Path(file).stem, set()).update(machines)
    assert set(found) == {lock for image in OWN for lock in image.locks}
    assert found["operator"] == {"x86_64", "aarch64"}
    assert found["runtime-cpu"] == {"x86_64"}
    assert found["runtime-ascend-aarch64"] == {"aarch64"}
    assert found["runtime-ascend-vllm"] == found["suffix"] == set()


@pytest.mark.parametrize(("hub", "client", "gsm8k"), [
    ("HuggingFace", "uvx --from huggingface_hub==2.4.0 hf", "openai/gsm8k"),
    ("ModelScope", "uvx --from modelscope-hub==0.5.1 modelscope", "AI-ModelScope/gsm8k"),
])  # fmt: skip
def test_a_mirror_gets_what_the_built_in_recipes_download(
    capsys: pytest.CaptureFixture[str], hub: str, client: str, gsm8k: str
) -> None:
    assert mirror.main(["--to", "m.example.com", "--only", "models", "--hub", hub]) == 0
    *lines, _ = capsys.readouterr().out.splitlines()[1:]
    text = "".join(path.read_text() for path in (ROOT / "charts/rljob-operator/recipes").glob("*.yaml"))
    models = set(re.findall(r"download: \{repository: ([^,]+),", text))
    assert models
    data = f"{client} download {gsm8k} --repo-type dataset --include 'main/train-*.parquet'"
    assert f"{data} --include 'main/test-*.parquet' --local-dir mirror/data/{gsm8k}" in lines
    assert {f"{client} download {name} --local-dir mirror/models/{name}" for name in models} <= set(lines)
    assert len(lines) == len(models) + len(set(re.findall(r"dataset: (\w+)", text)))

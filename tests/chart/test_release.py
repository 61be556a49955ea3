"""The commands of a release, carried out with programs that record what they are asked."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.release import __main__ as release
from scripts.release import chart
from scripts.release.images import MACHINES, OWN, bills, own_name, read_names
from tests.chart.helm import NAMESPACE, ROOT, binary, helm

REGISTRY, VERSION = "registry.example.com/rl", "9.8.7"
SITE = [
    *("--build-arg", "BASE_IMAGE=docker.io/library/python@sha256:1"),
    *("--build-arg", "@linux/amd64/TRITON_ASCEND_WHEEL=x86_64.whl"),
    *("--build-arg", "@linux/amd64/TRITON_ASCEND_SHA256=2"),
    *("--build-arg", "@linux/arm64/TRITON_ASCEND_WHEEL=aarch64.whl"),
    *("--build-arg", "@linux/arm64/TRITON_ASCEND_SHA256=3"),
    *("--build-arg", "TORCH_WHEEL=torch.whl", "--build-arg", "TORCH_SHA256=4"),
]
WORDS = ["--registry", REGISTRY, "--version", VERSION]


def test_a_release_names_its_own_images(tmp_path: Path) -> None:
    chart.stage(REGISTRY, VERSION, tmp_path / "chart")
    answer = helm("template", "rljob-operator", tmp_path / "chart", "--namespace", NAMESPACE)
    assert answer.code == 0, answer.stderr
    assert f'image: "{REGISTRY}/operator:{VERSION}"' in answer.stdout
    assert f"{REGISTRY}/operator:{VERSION}" in read_names((tmp_path / "chart/images.txt").read_text())
    packaged = helm("package", tmp_path / "chart", "--version", VERSION, "--destination", tmp_path)
    assert packaged.code == 0, packaged.stderr
    assert (tmp_path / f"rljob-operator-{VERSION}.tgz").exists()


def test_a_dry_run_of_a_release_prints_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _printed(capsys, [*WORDS, *SITE, "--sign", "cosign.key"])
    programs_used = {line.split()[0].rpartition("/")[2] for line in lines}
    assert {name for name in programs_used if "python" not in name} == {"mkdir", "buildah", "sh", "helm", "cosign"}
    builds = [line.split() for line in lines if line.startswith("buildah build")]
    platforms = [(image, platform) for image in OWN for platform in image.platforms]
    for words, (image, platform) in zip(builds, platforms, strict=True):
        assert words[words.index("--platform") + 1] == platform
        assert words[words.index("-f") + 1] == image.dockerfile
        assert words[words.index("--manifest") + 1] == own_name(image, REGISTRY, VERSION)
        given = {
            word.partition("=")[0] for word, before in zip(words[1:], words, strict=False) if before == "--build-arg"
        }
        required = {each.name for each in image.required if platform in (each.platforms or image.platforms)}
        assert given == required | dict(image.arguments).keys()
    for line in lines:
        if line.startswith("sh -c"):
            script = shlex.split(line)[2]
            assert subprocess.run(["sh", "-n", "-c", script], check=False, timeout=10).returncode == 0, script
    assert not any("cosign" in line for line in _printed(capsys, [*WORDS, *SITE]))


def _printed(capsys: pytest.CaptureFixture[str], words: list[str]) -> list[str]:
    """Return what a dry run prints; it must write nothing."""
    dist = ROOT / "dist"
    before = (sorted(ROOT.iterdir()), sorted(dist.rglob("*")) if dist.exists() else None)
    assert release.main(words) == 0
    assert (sorted(ROOT.iterdir()), sorted(dist.rglob("*")) if dist.exists() else None) == before
    return capsys.readouterr().out.splitlines()


def test_the_bills_of_materials_have_every_lock_of_an_image() -> None:
    for image in OWN:
        named = set(re.findall(r"requirements/([\w-]+)\.txt", (ROOT / image.dockerfile).read_text()))
        assert named == {*image.locks, *image.tools}, image.name
        assert {lock for locks in bills(image).values() for lock in locks} == set(image.locks)
        for name, locks in bills(image).items():
            assert len({lock for lock in locks if lock.endswith(tuple(MACHINES.values()))}) <= 1, name


RECORDER = """#!{python}
import os, subprocess, sys
from pathlib import Path

name, words = Path(sys.argv[0]).name, sys.argv[1:]
with open("{log}", "a") as log:
    print(name, *words, file=log)


def images(list_name):
    return Path("{log}.lists") / list_name.replace("/", "_")


match [name, *words]:
    case ["uvx", *_]:
        Path(words[-1]).write_text(sys.stdin.read())
    case ["buildah", "manifest", "exists", which]:
        sys.exit(not images(which).exists())
    case ["buildah", "manifest", "rm", which]:
        images(which).unlink()
    case ["buildah", "build", *_]:
        list_of = images(words[words.index("--manifest") + 1])
        list_of.parent.mkdir(exist_ok=True)
        with list_of.open("a") as file:
            for platform in words[words.index("--platform") + 1].split(","):
                print(platform, file=file)
    case ["buildah", "manifest", "push", "--all", "--digestfile", digest, which, _]:
        Path(digest).write_text("sha256:{image}")
        with open("{log}.pushed", "a") as pushed:
            print(which, *images(which).read_text().split(), file=pushed)
    case ["helm", "push", package, *_] if "FAILS" in os.environ:
        sys.exit("Error: denied")
    case ["helm", "push", package, *_]:
        print("Pushed:", package, file=sys.stderr)
        print("Digest: sha256:{chart}", file=sys.stderr)
    case ["helm", *_]:
        sys.exit(subprocess.run(["{helm}", *words]).returncode)
"""
"""buildah adds to a list that exists, as the real one does. With FAILS, a push of the chart fails."""
IMAGE_DIGEST, CHART_DIGEST = "1" * 64, "2" * 64


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put programs on PATH that record their words; helm packages and verifies as it is. Return the record."""
    folder, log = tmp_path / "programs", tmp_path / "record"
    folder.mkdir()
    text = RECORDER.format(python=sys.executable, log=log, image=IMAGE_DIGEST, chart=CHART_DIGEST, helm=binary())
    for name in ("uvx", "buildah", "cosign", "helm"):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return log


def _output(*words: str | Path) -> bytes:
    return subprocess.run(words, check=True, capture_output=True, timeout=60).stdout


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with an OpenPGP key in the keyrings secret.gpg and public.gpg, and its passphrase in a file."""
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ("gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "secret")
    _output(*gpg, "--quick-generate-key", "releases@example.com", "rsa2048", "sign", "never")
    (tmp_path / "secret.gpg").write_bytes(_output(*gpg, "--export-secret-keys"))
    (tmp_path / "public.gpg").write_bytes(_output(*gpg, "--export"))
    (tmp_path / "passphrase").write_text("secret")
    yield tmp_path
    # gpg starts an agent for this folder.
    _output("gpgconf", "--homedir", home, "--kill", "gpg-agent")


def test_a_release_is_signed_and_described(recorded: Path, keyring: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    key = ["--chart-key", "releases@example.com", "--keyring", str(keyring / "secret.gpg")]
    words = [*WORDS, *SITE, "--sign", "cosign.key", *key, "--passphrase-file", str(keyring / "passphrase")]
    shown = ["--public-key", "A" * 40, "https://example.com/key.asc"]
    assert release.main([*words, *shown, "--dist", str(dist), "--run"]) == 0
    lines = recorded.read_text().splitlines()
    # Images are signed and attested by their digests, with each of their bills.
    cosign = "cosign {} --yes --key cosign.key"
    for image in OWN:
        pushed = f"{REGISTRY}/{image.name.partition(':')[0]}@sha256:{IMAGE_DIGEST}"
        assert f"{cosign.format('sign')} --recursive {pushed}" in lines
        for bill, locks in bills(image).items():
            predicate = f"--type cyclonedx --predicate {dist}/{bill}.cdx.json"
            assert f"{cosign.format('attest')} {predicate} {pushed}" in lines
            # Instead of a bill, the recorder writes what it should be made of.
            text = "".join((ROOT / f"requirements/{lock}.txt").read_text() for lock in locks)
            assert (dist / f"{bill}.cdx.json").read_text() == text
    predicate = f"--type cyclonedx --predicate {dist}/fakenpu.cdx.json"
    assert f"{cosign.format('attest')} {predicate} {REGISTRY}/fakenpu@sha256:{IMAGE_DIGEST}" in lines
    assert json.loads((dist / "fakenpu.cdx.json").read_text())["metadata"]["component"]["version"] == VERSION
    assert f"{cosign.format('sign')} {REGISTRY}/charts/rljob-operator@sha256:{CHART_DIGEST}" in lines
    for file in ("images.txt", "install.yaml", "fakenpu.yaml"):
        assert f"{cosign.format('sign-blob')} --bundle {dist}/{file}.sigstore.json {dist}/{file}" in lines
    # Others verify the package with the public key.
    package = dist / f"rljob-operator-{VERSION}.tgz"
    verified = helm("verify", package, "--keyring", keyring / "public.gpg")
    assert verified.code == 0, verified.stderr
    package.write_bytes(package.read_bytes() + b" ")
    assert helm("verify", package, "--keyring", keyring / "public.gpg").code != 0
    assert {path.suffix for path in dist.glob("*.whl")} == {".whl"}
    assert f"{REGISTRY}/operator:{VERSION}" in (dist / "install.yaml").read_text()
    assert f"{REGISTRY}/fakenpu:{VERSION}" in (dist / "fakenpu.yaml").read_text()


def test_a_second_run_publishes_nothing_of_the_first(recorded: Path, tmp_path: Path) -> None:
    for dist in ("first", "second"):
        assert release.main([*WORDS, *SITE, "--dist", str(tmp_path / dist), "--run"]) == 0
    pushed = [line.split() for line in recorded.with_name("record.pushed").read_text().splitlines()]
    expected = [[own_name(image, REGISTRY, VERSION), *image.platforms] for image in OWN]
    assert pushed == expected * 2


def test_a_chart_that_is_not_pushed_is_not_signed(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "never")
    words = [
        *WORDS,
        *SITE[:2],
        "--sign",
        "cosign.key",
        "--image",
        "operator",
        "--dist",
        str(tmp_path / "dist"),
        "--run",
    ]
    with pytest.raises(subprocess.CalledProcessError):
        release.main(words)
    assert not [line for line in recorded.read_text().splitlines() if "cosign sign" in line and "charts" in line]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([*WORDS], "operator needs --build-arg operator/BASE_IMAGE=VALUE; see images/operator/Dockerfile"),
        ([*WORDS, "--build-arg", "BASE_IMAGE"], "no value; write [IMAGE]"),
        (["--registry", REGISTRY, "--version", "one"], "not a semantic version"),
        ([*WORDS, "--chart-key", "a"], "--chart-key and --keyring name a key together"),
        ([*WORDS, "--public-key", "A" * 40, "https://example.com"], "add that"),
        (
            [*WORDS, "--chart-key", "a", "--keyring", "b", "--public-key", "A", "https://example.com"],
            "a fingerprint has 40 hexadecimal digits",
        ),
    ],
)
def test_what_a_release_lacks_is_told(capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    try:
        code = release.main(words)
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2
    assert complaint in capsys.readouterr().err

"""The commands of a release, carried out with programs that record what they are asked."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.release import __main__ as release
from scripts.release import chart, checks
from scripts.release.images import MACHINES, OWN, own_name, read_names
from scripts.release.plan import Step
from tests.chart.helm import CHART, NAMESPACE, ROOT, binary, helm

REGISTRY, VERSION = "registry.example.com/rl", "9.8.7"
ARGUMENTS = """
BASE_IMAGE = "docker.io/library/python@sha256:1"
TORCH_WHEEL = "torch.whl"
TORCH_SHA256 = "4"
["@linux/amd64"]
TRITON_ASCEND_WHEEL = "x86_64.whl"
TRITON_ASCEND_SHA256 = "2"
["@linux/arm64"]
TRITON_ASCEND_WHEEL = "aarch64.whl"
TRITON_ASCEND_SHA256 = "3"
"""
SITE = ["--build-args", "site.toml"]
WORDS = ["--registry", REGISTRY, "--version", VERSION]


def test_a_release_names_its_own_images(tmp_path: Path) -> None:
    chart.stage(REGISTRY, VERSION, tmp_path / "chart")
    answer = helm("template", "rljob-operator", tmp_path / "chart", "--namespace", NAMESPACE)
    assert answer.code == 0, answer.stderr
    assert f'image: "{REGISTRY}/operator:{VERSION}"' in answer.stdout
    assert f"{REGISTRY}/operator:{VERSION}" in read_names((tmp_path / "chart/images.txt").read_text())
    readme = (tmp_path / "chart/README.md").read_text()
    assert f'| `image.registry` | `"{REGISTRY}"` |' in readme
    assert f'| `image.tag` | `"{VERSION}"` |' in readme
    assert '`"rljob.local"`' not in readme
    packaged = helm("package", tmp_path / "chart", "--version", VERSION, "--destination", tmp_path)
    assert packaged.code == 0, packaged.stderr
    assert (tmp_path / f"rljob-operator-{VERSION}.tgz").exists()


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("values.yaml", "  registry: "),
        ("values.yaml", "  tag: "),
        ("README.md", "| `image.registry` "),
        ("README.md", "| `image.tag` "),
    ],
)
def test_a_chart_without_a_place_for_a_setting_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, line: str
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(CHART, changed)
    text = (changed / file).read_text()
    (changed / file).write_text("".join(row for row in text.splitlines(keepends=True) if not row.startswith(line)))
    monkeypatch.setattr(chart, "CHART", changed)
    with pytest.raises(ValueError, match=f"{file} has no line"):
        chart.stage(REGISTRY, VERSION, tmp_path / "chart")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout in which the version is set as for a release."""
    folder = tmp_path_factory.mktemp("release") / "tree"
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in (name for name in listed.split("\0") if name and (ROOT / name).exists()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    for name in checks.PROJECTS:
        _set(folder / name, r"^version = .*$", f'version = "{VERSION}"')
    for field in ("version", "appVersion"):
        _set(folder / checks.CHART / "Chart.yaml", rf"^{field}: .*$", f"{field}: {VERSION}")
    _set(folder / "CHANGELOG.md", r"^## Unreleased$", f"## {VERSION} - 2026-12-01")
    (folder / "site.toml").write_text(ARGUMENTS)
    return folder


def _set(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text(), flags=re.MULTILINE)
    assert count == 1, path
    path.write_text(changed)


def run_release(tree: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a checkout, as a person does."""
    return subprocess.run(
        [sys.executable, "-m", "scripts.release", *WORDS, *words],
        cwd=tree,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_dry_run_of_a_release_prints_commands_that_exist(tree: Path) -> None:
    lines = _printed(tree, *SITE, "--sign", "cosign.key")
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
    assert not any("cosign" in line for line in _printed(tree, *SITE))


def _printed(tree: Path, *words: str) -> list[str]:
    """Return what a dry run prints; it must write nothing."""
    before = sorted(tree.rglob("*"))
    done = run_release(tree, *words)
    assert done.returncode == 0, done.stderr
    assert sorted(tree.rglob("*")) == before
    return done.stdout.splitlines()


def test_the_locks_of_an_image_are_those_of_its_dockerfile() -> None:
    """The mirror downloads their packages."""
    for image in OWN:
        named = set(re.findall(r"requirements/([\w-]+)\.txt", (ROOT / image.dockerfile).read_text()))
        assert named == set(image.locks), image.name


RECORDER = """#!{python}
import os, subprocess, sys
from pathlib import Path

name, words = Path(sys.argv[0]).name, sys.argv[1:]
with open("{log}", "a") as log:
    print(name, *words, file=log)


def images(list_name):
    return Path("{log}.lists") / list_name.replace("/", "_")


match [name, *words]:
    case ["syft", "scan", "--platform", platform, "--output", file, _]:
        Path(file.removeprefix("cyclonedx-json=")).write_text(platform)
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
    for name in ("syft", "buildah", "cosign", "helm"):
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


def test_a_release_is_signed_and_described(tree: Path, recorded: Path, keyring: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    (tmp_path / "cosign.key").touch()
    sign = ["--sign", str(tmp_path / "cosign.key")]
    key = ["--chart-key", "releases@example.com", "--keyring", str(keyring / "secret.gpg")]
    key += ["--passphrase-file", str(keyring / "passphrase"), "--public-key", "A" * 40, "https://example.com/key.asc"]
    done = run_release(tree, *SITE, *sign, *key, "--dist", dist, "--run")
    assert done.returncode == 0, done.stderr
    lines = recorded.read_text().splitlines()
    # Images are signed and attested by their digests, with each of their bills.
    cosign = f"cosign {{}} --yes --key {tmp_path}/cosign.key"
    for image in OWN:
        pushed = f"{REGISTRY}/{image.name.partition(':')[0]}@sha256:{IMAGE_DIGEST}"
        assert f"{cosign.format('sign')} --recursive {pushed}" in lines
        for platform in image.platforms:
            bill = dist / f"{image.name.replace(':', '-')}-{MACHINES[platform]}.cdx.json"
            assert bill.read_text() == platform
            scanned = f"syft scan --platform {platform} --output cyclonedx-json={bill} registry:{pushed}"
            attested = f"{cosign.format('attest')} --type cyclonedx --predicate {bill} {pushed}"
            assert lines.index(scanned) < lines.index(attested)
    assert f"{cosign.format('sign')} {REGISTRY}/charts/rljob-operator@sha256:{CHART_DIGEST}" in lines
    for file in ("images.txt", "install.yaml", "fakenpu.yaml"):
        assert f"{cosign.format('sign-blob')} --bundle {dist}/{file}.sigstore.json {dist}/{file}" in lines
    # Others verify the package with the public key.
    package = dist / f"rljob-operator-{VERSION}.tgz"
    verified = helm("verify", package, "--keyring", keyring / "public.gpg")
    assert verified.code == 0, verified.stderr
    package.write_bytes(package.read_bytes() + b" ")
    assert helm("verify", package, "--keyring", keyring / "public.gpg").code != 0
    wheels = {path.name for path in dist.glob("*.whl")}
    assert wheels == {f"{name}-{VERSION}-py3-none-any.whl" for name in ("rljob", "rljob_runtime")}
    assert f"{REGISTRY}/operator:{VERSION}" in (dist / "install.yaml").read_text()
    assert f"{REGISTRY}/fakenpu:{VERSION}" in (dist / "fakenpu.yaml").read_text()


def test_a_second_run_publishes_nothing_of_the_first(tree: Path, recorded: Path, tmp_path: Path) -> None:
    for dist in ("first", "second"):
        done = run_release(tree, *SITE, "--dist", tmp_path / dist, "--run")
        assert done.returncode == 0, done.stderr
    pushed = [line.split() for line in recorded.with_name("record.pushed").read_text().splitlines()]
    expected = [[own_name(image, REGISTRY, VERSION), *image.platforms] for image in OWN]
    assert pushed == expected * 2


def test_a_chart_that_is_not_pushed_is_not_signed(
    tree: Path, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "never")
    (tmp_path / "cosign.key").touch()
    sign = ["--sign", str(tmp_path / "cosign.key")]
    done = run_release(tree, *SITE, *sign, "--image", "operator", "--dist", tmp_path / "dist", "--run")
    lines = recorded.read_text().splitlines()
    assert not [line for line in lines if "cosign sign" in line and "charts" in line]
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (last,) = [line for line in done.stderr.splitlines() if line.startswith("rljob release: ")]
    assert re.fullmatch(r"rljob release: step \d+ of \d+, push of the chart: sh ended with exit code 1; .*", last)
    # What fails within seconds comes before the builds, and nothing is pushed before all images are built.
    order = [next(n for n, line in enumerate(lines) if line.startswith(words)) for words in ORDER]
    assert order == sorted(order)


ORDER = (
    "helm package",
    "cosign sign-blob",
    "buildah build",
    "buildah manifest push",
    "syft scan",
    "cosign attest",
    "helm push",
)


def test_a_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert release.failed(Step("a", ["true"])) == ""
    assert release.failed(Step("a", ["false"])) == "false ended with exit code 1; its output is above"
    assert (
        release.failed(Step("a", ["no-such-program"])) == "no-such-program cannot be started: No such file or directory"
    )
    monkeypatch.setattr(release, "STEP_SECONDS", 0.1)
    assert release.failed(Step("a", ["sleep", "60"])) == "not done within 0.1 s"


def test_nothing_runs_if_something_is_missing(
    tree: Path, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recorded.parent / "programs/cosign").unlink()
    for name in ("sh", "sed", "tee", "cat", "mkdir"):
        (recorded.parent / "programs" / name).symlink_to(Path(str(shutil.which(name))))
    monkeypatch.setenv("PATH", str(recorded.parent / "programs"))
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "old.whl").touch()
    done = run_release(tree, *SITE, "--sign", "no.key", "--dist", dist, "--run")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "rljob release: cosign is not on PATH; install cosign 2",
        f"rljob release: --sign no.key: no such file below {tree}; correct the path",
        f"rljob release: --dist {dist}: it has old.whl; delete what it has, or name an empty folder",
    ]
    assert not recorded.exists()
    assert [path.name for path in dist.iterdir()] == ["old.whl"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([*WORDS], 'operator needs ["operator"] BASE_IMAGE; see images/operator/Dockerfile'),
        ([*WORDS, "--build-args", "no.toml"], "--build-args no.toml: [Errno 2] No such file or directory"),
        (["--registry", REGISTRY, "--version", "one"], "--version one: no semantic version"),
        ([*WORDS], f"operator/pyproject.toml has version 0.1.0, not {VERSION}"),
        ([*WORDS, "--chart-key", "a"], "--chart-key and --keyring name a key together"),
        ([*WORDS, "--public-key", "A" * 40, "https://example.com"], "add that"),
        (
            [*WORDS, "--chart-key", "a", "--keyring", "b", "--public-key", "A", "https://example.com"],
            "a fingerprint has 40 hexadecimal digits",
        ),
    ],
)
def test_a_release_that_lacks_something_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    try:
        code = release.main(words)
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2
    assert complaint in capsys.readouterr().err

"""The host's settings for package indexes, for use in a build only.

A machine may reach packages only through a mirror, with its own certificates. Its pip, uv and apt are configured for it
in the environment, or in user or system files. The settings are read through these programs and mounted read-only.
"""

import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

# The environment variables with which programs find certificates.
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# pip's options that state the source of packages; other options are left to the Dockerfile.
PIP_OPTIONS = (
    "cert",
    "client-cert",
    "extra-index-url",
    "find-links",
    "index-url",
    "no-index",
    "proxy",
    "retries",
    "timeout",
    "trusted-host",
)
# pip writes the variable PIP_DEFAULT_TIMEOUT as an option of this name.
PIP_SYNONYMS = {"default-timeout": "timeout"}
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def build_options(scratch: Path) -> list[str]:
    """Return the arguments of `buildah build` with which it reaches packages as the host does."""
    options: list[str] = []
    pip = pip_options(_pip_config())
    for target, content in (("/etc/pip.conf", pip_file(pip)), ("/etc/uv/uv.toml", uv_file(pip))):
        source = scratch / Path(target).name
        source.touch(mode=0o600)
        source.write_text(content)
        options += ["--volume", f"{source}:{target}:ro"]
    for path in sorted(_mentioned(pip)):
        options += ["--volume", f"{path}:{path}:ro"]
    certificates = host_certificates()
    if certificates:
        options += ["--volume", f"{certificates}:{SYSTEM_CERTIFICATES}:ro"]
        options += ["--secret", f"id=ca,src={certificates}"]
    # buildah predefines these arguments and omits them from the image's history.
    return options + [word for name in PROXY_VARIABLES if name in os.environ for word in ("--build-arg", name)]


def pip_options(listed: str) -> dict[str, str]:
    """Return the source of packages according to `pip config list`; the environment takes precedence, as in pip."""
    found: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, equals, value = line.partition("=")
        option = name.rpartition(".")[2]
        option = PIP_SYNONYMS.get(option, option)
        if equals and option in PIP_OPTIONS:
            found[option] = str(literal_eval(value))
    return found


def pip_file(options: dict[str, str]) -> str:
    """Return a pip.conf with these options."""
    lines = [f"{name} = {' '.join(value.split())}" for name, value in sorted(options.items())]
    return "\n".join(["[global]", *lines, ""])


def uv_file(options: dict[str, str]) -> str:
    """Return a uv.toml that is equivalent to pip's options; uv's own variables take precedence."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL") or options.get("index-url")
    lines = ["native-tls = true"]
    if index:
        lines.append(f'index-url = "{index}"')
    for name in ("extra-index-url", "find-links"):
        if options.get(name):
            values = ", ".join(f'"{value}"' for value in options[name].split())
            lines.append(f"{name} = [{values}]")
    return "\n".join([*lines, ""])


def host_certificates() -> Path | None:
    """Return the file with the certificate authorities that the host trusts."""
    named = [Path(os.environ[name]) for name in CERTIFICATE_VARIABLES if os.environ.get(name)]
    return next((path for path in [*named, SYSTEM_CERTIFICATES] if path.is_file()), None)


def debian_mirror(suite: str) -> list[str]:
    """Return the mirror that this machine's apt uses for a suite, for debootstrap; empty for its default."""
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        release, component, address = line.split(maxsplit=2)
        if (release, component) == (suite, "main"):
            return [address]
    return []


def _pip_config() -> str:
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _mentioned(options: dict[str, str]) -> set[Path]:
    """Return the folders and files of this machine that the options refer to; certificates are mounted separately."""
    words = [word for name in ("find-links", "client-cert", "cert") for word in options.get(name, "").split()]
    paths = {Path(word) for word in words if word.startswith("/")}
    return {path for path in paths if path.exists() and path != SYSTEM_CERTIFICATES}

"""Keys, certificates and kubeconfigs of the cluster, created by openssl.

One authority signs everything. `down` keeps the keys, so an existing kubeconfig works for the next cluster; `down
--purge` removes them. Certificates that are about to expire are renewed.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.paths import API_SERVICE_ADDRESS, API_URL, HOST_ADDRESS, State
from tests.cluster.shell import run, succeeds

VALID_DAYS = 365
RENEW_BEFORE_SECONDS = 14 * 24 * 3600


@dataclass(frozen=True)
class Certificate:
    """Content of a certificate: its subject, and the names that it is valid for."""

    name: str
    subject: str
    names: tuple[str, ...] = ()
    usages: tuple[str, ...] = ("clientAuth",)


API_SERVER = Certificate(
    "apiserver",
    "/CN=kube-apiserver",
    names=(
        "IP:127.0.0.1",
        f"IP:{API_SERVICE_ADDRESS}",
        f"IP:{HOST_ADDRESS}",
        "DNS:localhost",
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        "DNS:kubernetes.default.svc.cluster.local",
    ),
    usages=("serverAuth",),
)
ADMIN = Certificate("admin", "/O=system:masters/CN=admin")


def kubelet_certificate(node: str, address: str) -> Certificate:
    """Return the certificate with which a kubelet and the API server identify the kubelet."""
    return Certificate(
        f"kubelet-{node}",
        f"/O=system:nodes/CN=system:node:{node}",
        names=(f"IP:{address}", f"DNS:{node}"),
        usages=("clientAuth", "serverAuth"),
    )


def ensure_keys(state: State, server: str = API_URL) -> None:
    """Create what is missing of the authority, the control plane's keys and the admin's configuration."""
    folder = state.pki
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = folder / "ca.crt"
    if not _good(authority):
        # A new authority invalidates every older certificate.
        for old in folder.iterdir():
            old.unlink()
        _key(folder / "ca.key")
        request = ["openssl", "req", "-x509", "-new", "-key", str(folder / "ca.key"), "-subj", "/CN=rljob-cluster"]
        run([*request, "-days", str(VALID_DAYS), "-out", authority])
    if not (folder / "sa.pub").exists():
        _key(folder / "sa.key")
        run(["openssl", "pkey", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub"])
    ensure_certificate(folder, API_SERVER)
    ensure_certificate(folder, ADMIN)
    write_kubeconfig(folder, ADMIN.name, state.admin_kubeconfig, server)


def ensure_certificate(folder: Path, wanted: Certificate) -> None:
    """Create a certificate unless a valid one exists."""
    made = folder / f"{wanted.name}.crt"
    if _good(made):
        return
    key, request, extensions = (folder / f"{wanted.name}.{suffix}" for suffix in ("key", "csr", "ext"))
    _key(key)
    run(["openssl", "req", "-new", "-key", str(key), "-subj", wanted.subject, "-out", request])
    lines = [f"extendedKeyUsage={','.join(wanted.usages)}"]
    if wanted.names:
        lines.append(f"subjectAltName={','.join(wanted.names)}")
    extensions.write_text("\n".join(lines) + "\n")
    authority = folder / "ca.crt"
    sign: list[str | Path] = [
        "openssl",
        "x509",
        "-req",
        "-in",
        request,
        "-CA",
        authority,
        "-CAkey",
        authority.with_suffix(".key"),
    ]
    run([*sign, "-CAcreateserial", "-days", str(VALID_DAYS), "-extfile", extensions, "-out", made])


def write_kubeconfig(folder: Path, certificate: str, path: Path, server: str = API_URL) -> None:
    """Write a self-contained kubeconfig, with the certificates inside."""

    def inline(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rljob", "cluster": {"server": server, "certificate-authority-data": inline("ca.crt")}}],
        "users": [
            {
                "name": certificate,
                "user": {
                    "client-certificate-data": inline(f"{certificate}.crt"),
                    "client-key-data": inline(f"{certificate}.key"),
                },
            }
        ],
        "contexts": [{"name": "rljob", "context": {"cluster": "rljob", "user": certificate}}],
        "current-context": "rljob",
    }
    text = json.dumps(content, indent=1)
    if not path.exists() or path.read_text() != text:
        path.touch(mode=0o600)
        path.write_text(text)


def _key(path: Path) -> None:
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path])
    path.chmod(0o600)


def _good(certificate: Path) -> bool:
    if not certificate.exists():
        return False
    return succeeds(["openssl", "x509", "-in", certificate, "-noout", "-checkend", str(RENEW_BEFORE_SECONDS)])

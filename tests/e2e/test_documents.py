"""The command and manifest blocks of the documentation, on the local cluster, as a reader would use them.

Chinese pages have the same commands and manifests (tests/house/test_blocks.py), so each block is used once.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.site.blocks import Block, Verdict, all_blocks
from scripts.site.manifests import manifests
from scripts.site.pages import TRANSLATED
from scripts.site.shell import unknown_options
from tests.e2e.conftest import cluster
from tests.kube import Kube, wait_for
from tests.reader import carry_out, checkout

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

BLOCKS = [block for block in all_blocks() if not block.page.endswith(TRANSLATED)]
PAGE_SECONDS = 1500
PAGES = {
    page: list(found)
    for page, found in itertools.groupby(
        (block for block in BLOCKS if block.verdict is Verdict.RUN_ON_CLUSTER), lambda block: block.page
    )
}
"""Page -> the blocks that run on the cluster, in their order."""


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.verdict is Verdict.DRY_RUN], ids=lambda b: b.place
)
def test_the_api_server_accepts_a_manifest(kube: Kube, block: Block) -> None:
    for manifest in manifests(block):
        here = manifest | {"metadata": manifest["metadata"] | {"namespace": kube.namespace}}
        kube.run("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=json.dumps(here))


def test_kubectl_and_helm_have_the_options(admin: Kube) -> None:
    programs = (Path(admin.kubectl), Path(cluster("path", "helm")) / "helm")
    texts = [block for block in BLOCKS if block.language == "sh"]
    wrong = [
        (block.place, found) for block in texts for each in programs if (found := unknown_options(each, block.text))
    ]
    assert wrong == []


@pytest.fixture
def reader(admin: Kube, request: pytest.FixtureRequest) -> Iterator[Kube]:
    """Yield access to a new namespace, which the page has for itself."""
    name = Path(request.getfixturevalue("page")).stem.lower()
    access = admin.in_namespace(f"reader-{name}")
    access.delete("namespace", access.namespace)
    access.run("create", "namespace", access.namespace)
    yield access
    access.delete("namespace", access.namespace, wait=False)
    wait_for("the namespace is gone", lambda: access.get("namespace", access.namespace) is None, 300)


@pytest.mark.training
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, reader: Kube, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(Path(reader.kubeconfig).read_text())
    own = replace(reader, kubeconfig=str(config))
    own.run("config", "set-context", "--current", f"--namespace={reader.namespace}")
    text = "\n".join(block.text for block in PAGES[page])
    programs = (Path(reader.kubectl).parent, cluster("path", "helm"))
    code, output = carry_out(text, checkout(tmp_path), config, PAGE_SECONDS, programs)
    print(output)
    assert code == 0, output[-4000:]

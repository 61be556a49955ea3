"""Install the product into the running local cluster: images into the node, and the operator by the chart.

`make install` and the stage `product` of `make test` run it; the demo does the same with its own output. Nothing is
built, imported or rolled out if nothing changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.demo import operator
from scripts.demo.commands import Kubernetes, cluster, cluster_answer
from scripts.demo.errors import DemoError

IMAGES_SECONDS = 3600


def local_kubernetes() -> Kubernetes:
    """Return the local cluster with the kubectl of its own version."""
    kubeconfig = Path(cluster_answer("kubeconfig"))
    return Kubernetes(kubeconfig, f"{cluster_answer('path', 'kube')}/kubectl")


def install(kubernetes: Kubernetes) -> None:
    """Install or upgrade the operator from the image that was built last."""
    image_id = cluster_answer("image", "build", "operator")
    helm = f"{cluster_answer('path', 'helm')}/helm"
    operator.install(kubernetes, helm, "rljob.local/operator:dev", image_id)


def main() -> int:
    """Import the images that the command line names, or all that a job needs, and install the operator."""
    try:
        cluster("image", "load", *sys.argv[1:], seconds=IMAGES_SECONDS)
        install(local_kubernetes())
    except DemoError as error:
        print(f"install: {error}", file=sys.stderr)
        return 1
    print(f"the operator is ready in namespace {operator.NAMESPACE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The local Kubernetes: a real cluster on one machine, for the demo, CI and daily use.

`python -m tests.cluster up` compiles what is missing, starts a control plane and one or two nodes, and installs
KubeRay; `down` removes all of it. Only the command line and tests use this package, and it never imports the product.
"""

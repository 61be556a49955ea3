"""Tests against real programs: the local cluster, an API server, KubeRay."""

"""A thousand jobs on simulated nodes and Ray heads, with a real API server and KubeRay."""

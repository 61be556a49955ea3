"""A thousand jobs on nodes and Ray heads that are not there, against an API server and a KubeRay that are."""

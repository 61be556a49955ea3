"""The Helm chart: rendered, refused, and run on the local cluster."""

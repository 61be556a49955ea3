"""Metrics, structured logs, Kubernetes events and health of the operator."""

"""What the operator tells of itself: metrics, structured logs, Kubernetes events and health."""

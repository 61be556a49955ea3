"""Access to the Kubernetes API and to the Ray head pods, behind one port."""

"""The world outside: the Kubernetes API and the Ray head pods, behind one port."""

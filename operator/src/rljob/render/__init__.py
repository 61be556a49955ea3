"""Desired objects as plain manifests: deterministic, no I/O; each builder reads like the object that it makes."""

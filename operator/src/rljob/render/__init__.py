"""Desired objects as plain manifests: deterministic, no I/O. Each builder reads like the object that it creates."""

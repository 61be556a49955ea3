"""What the objects of a cluster and the files of a run say about a job.

The command line and the Python client read with it. Pure: it takes manifests and texts, and returns jobs, pods, records
and figures. Its callers reach the cluster, each in its own way.
"""

from __future__ import annotations


class UnreadableError(Exception):
    """An object or a volume cannot be used; the message says what to do."""

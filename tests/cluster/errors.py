"""The exception of this package, whose message has what was seen, where, and what to do.

The command line prints its message without a traceback. Any other exception is a bug and keeps its traceback.
"""


class ClusterError(Exception):
    """Something on this machine prevents the command; the message says what to do."""

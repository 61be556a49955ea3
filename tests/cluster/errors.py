"""The one error of this package: what was seen, where, and what to do.

The command line prints its text without a traceback; everything else that is
raised is a defect of ours and keeps its traceback.
"""


class ClusterError(Exception):
    """Something on this machine stands in the way; the text says what to do."""

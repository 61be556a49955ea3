"""The one error of the command line: printed without a traceback, exit code 2."""


class UsageError(Exception):
    """The file, the cluster or the command cannot be used; the text says what to do."""

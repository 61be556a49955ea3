"""The exception of the command line, which is printed without a traceback and exits with code 2."""


class UsageError(Exception):
    """The file, the cluster or the command cannot be used; the message says what to do."""

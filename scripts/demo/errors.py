"""The one error of the demo: its text is what the user reads, without a traceback."""


class DemoError(Exception):
    """A step of the demo failed; the text says which, why, and where to look."""

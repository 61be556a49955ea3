"""The exception of the demo, whose text is printed without a traceback."""


class DemoError(Exception):
    """A step of the demo failed; the text says which one, why, and how to investigate it."""

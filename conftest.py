"""Lets pytest collect tests below operator/ although the standard library has a module of that name.

In import mode importlib, pytest 9 names a test `operator.tests.…` and, on the way, replaces every parent module that
has no `__path__` by a namespace package: the standard library's `operator` too, and the next `from operator import add`
fails. With a `__path__`, empty, pytest leaves the module alone.
"""

import operator

if not hasattr(operator, "__path__"):
    operator.__path__ = []

"""The launchers that this command line knows: the only module of it that names an implementation.

Importing it loads the API types and the rules of verl, so verbs import it where they read a spec, and not before.
"""

from __future__ import annotations

from rljob.launchers import LAUNCHER, VERSIONS

__all__ = ["LAUNCHER", "VERSIONS"]

"""The deep check: imports what a run imports, with the image's packages, and looks at the seams of what was loaded.

`plan` says what, `process` imports in a process of its own, `run` bounds that process, and `rows` judges. It shows what
sources and metadata cannot: a library that is missing, a binary compiled for another release, a name that a package
defines or replaces only as it is imported. No device is needed; what needs the driver of a node is left open.
"""

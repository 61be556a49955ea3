"""Checks whether an image can run a job: `python -m rljob_runtime check-image`.

`gather` reads facts about the image, `judge` decides, and `report` prints. Gathering imports no package of the
image: it reads versions from the metadata of distributions, and functions from source files. So it takes about a
second, needs no device, and also works in an image whose packages cannot be imported.
"""

"""What pinned upstream code raises or asserts because of configuration, with a verdict on each condition.

`python -m upstream.conditions` reads the wheels and clones of `sources` and writes the tables in `tables/`.
`verdicts.tsv` is kept by hand. `page` generates docs/reference/upstream-conditions.md from both and reads only what is
committed. `extract` and `sources` import only the standard library, because the seam tests also run them in the runtime
image.
"""

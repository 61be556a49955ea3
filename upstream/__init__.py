"""Facts about pinned upstream releases: read from wheels and clones, kept as tables. The law is in README.md."""

"""The pure core: what to do about one RLJob, given all that was seen of it."""

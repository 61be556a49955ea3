"""The pure core: decides what to do about one RLJob, given everything that was observed of it."""

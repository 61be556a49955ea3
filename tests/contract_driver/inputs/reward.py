"""A file for a job's reward.path; the contract driver does not call it."""


def compute_score(*_: object, **__: object) -> float:
    """Return the same score for every answer."""
    return 1.0

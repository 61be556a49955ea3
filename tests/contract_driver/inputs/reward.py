"""What a job's reward.path names; nobody calls it."""


def compute_score(*_: object, **__: object) -> float:
    """Score every answer alike."""
    return 1.0

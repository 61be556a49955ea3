"""Our extensions of verl, attached through its extension points: platform, trainer, task runner, router.

Importing this package imports nothing, so that launcher and tests can read its tables without torch.
"""

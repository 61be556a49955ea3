"""Our parts inside verl, attached through its seams: platform, trainer, task runner, router.

Importing this package imports nothing: the launcher and the tests read its tables without torch.
"""

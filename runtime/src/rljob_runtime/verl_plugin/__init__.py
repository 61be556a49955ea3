"""Our extensions of verl, attached through its extension points: `trainer`, `router` and `platform`.

Importing this package imports nothing, so that launcher and tests can read its tables without torch.
"""

"""The trainer of a job whose trainer is a command of the user's (`spec.launcher.type: Command`).

`trainer.py` runs the command for the launcher. It reads the command's steps (`progress.py`) from its output or from a
file (`process.py`), fills in its arguments (`placeholders.py`), and knows what it has saved (`attempt_folders.py`).
Everything that a command writes is foreign: it is bounded before it is read, and it never ends the launcher.
"""

"""What several steps do: close an attempt, end the job, order a stop, create children, set conditions.

Steps import these modules and never each other; nothing here imports a step.
"""

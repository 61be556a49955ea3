"""What a job brings, checked on the head before any model is loaded: its data files and its reward function.

`verl_plugin.launcher` calls the checks once verl's configuration is composed. A file that can never work ends the job
(exit 64) and a volume that does not answer ends the attempt (exit 65), where verl would raise minutes later, in a
worker and in other words. Nothing here imports verl or torch.
"""

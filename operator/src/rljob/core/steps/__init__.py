"""The decisions of `reconcile`, one module per phase of a job. A step never imports another step."""

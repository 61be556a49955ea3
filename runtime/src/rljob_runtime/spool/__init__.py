"""Records of a run: the spool on the head pod, its copy on a volume, figures of a step, and rules that read both."""

"""What runs inside the pods of an RLJob: the launcher, the verl and vLLM plug-ins and the exporter.

Only `rljob_runtime.contract` (and later `planning`) may be imported by the operator; everything else here assumes the
runtime image. Importing this package imports nothing else.
"""

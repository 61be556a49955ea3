"""What runs inside the pods of an RLJob: the launcher, the verl and vLLM plug-ins and the exporter.

The operator imports only `rljob_runtime.contract` and `rljob_runtime.planning`; everything else here assumes the
runtime image. Importing this package imports nothing else.
"""

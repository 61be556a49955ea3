"""Export a checkpoint in the format of Hugging Face to a folder, a model hub or MLflow.

The entrypoint of a Job without NPUs, which runs beside the training and never writes into its steps. The weights come
from verl's own converter. An export appears whole or not at all, and a repeated one does nothing.
"""

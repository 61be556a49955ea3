"""`rljob run --local` with real verl and vLLM; runs in the runtime image (scripts/in_image.py)."""

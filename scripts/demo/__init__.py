"""`make demo`: from a bare checkout to a trained model on a real cluster."""

"""Sending the weights of a trainer to replicas on other nodes."""

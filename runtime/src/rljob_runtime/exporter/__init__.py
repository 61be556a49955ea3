"""The exporter: a sidecar of the head pod that serves metrics, progress and stop requests, and outlives the driver.

It uses only the standard library and PyYAML, so it starts in a fraction of a second beside a busy trainer.
"""

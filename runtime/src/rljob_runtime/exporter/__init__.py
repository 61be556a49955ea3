"""The exporter: a sidecar on the head pod that outlives the driver; metrics, progress and the stop request over HTTP.

Standard library and PyYAML only: it starts in a fraction of a second beside a trainer that needs every core.
"""

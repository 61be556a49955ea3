"""Tests of the Helm chart: rendering, rejected values, and the chart on the local cluster."""

"""Tests of the whole: the local cluster, the chart, integration and end to end; a part's own tests stand beside it."""

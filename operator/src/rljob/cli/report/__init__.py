"""`rljob report`: one HTML file about one run, which can be read without the cluster and without a network.

`cluster`, `local` and `prometheus` each gather a `ReportRun` from its records; `page` turns it into HTML with the plots
of `plots`, drawn by `svg`. The modules that draw are pure.
"""

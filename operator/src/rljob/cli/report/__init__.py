"""`rljob report`: one HTML file about one run, which needs neither cluster nor network to be read.

`cluster`, `local` and `prometheus` each gather a `Run` from where its records are; `page` turns it into HTML with the
plots of `plots`, drawn by `svg`. What draws is pure.
"""

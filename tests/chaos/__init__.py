"""What takes too long for every change: `make chaos` plays it on the local cluster and prints figures."""

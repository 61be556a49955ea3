"""Other releases of what surrounds the operator. Only `make compat` runs these tests."""

"""Types of the API group rljob.dev and the CRDs generated from them."""

"""Other machines: the connection to a Ray cluster, for providers and simulations."""

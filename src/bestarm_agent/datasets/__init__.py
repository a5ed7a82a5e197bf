"""How datasets are read."""

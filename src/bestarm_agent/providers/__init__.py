"""How the models in the root `providers/` catalogue are spoken to."""

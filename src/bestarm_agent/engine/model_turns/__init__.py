"""Turns of models that do not fit into memory together."""

"""Offline replay of selection rules on score matrices that are already known."""

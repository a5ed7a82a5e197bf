"""Candidates that are Python functions or programs."""

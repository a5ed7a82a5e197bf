"""Turns a configuration into a run that can start."""

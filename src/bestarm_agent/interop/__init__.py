"""Logs of other tools: one module per format, all read into the same results."""

"""Confidence intervals and sequences for bounded means, without replacement."""

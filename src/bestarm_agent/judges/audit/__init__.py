"""Judges of a certification, which also uses scores of trusted judges or of people."""

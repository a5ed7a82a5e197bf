"""Judges that ask a model for a verdict."""

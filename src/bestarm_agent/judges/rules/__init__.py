"""Judges that score by rule, without a model call and without cost."""

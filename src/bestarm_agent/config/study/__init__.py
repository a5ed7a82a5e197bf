"""The schema of a study file, its loading, and the grid of candidates."""

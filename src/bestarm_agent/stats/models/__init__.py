"""Models of score matrices: one factor, low rank, example profiles."""

"""Gates: whether a challenger is not worse than a baseline, from as few examples as it takes."""

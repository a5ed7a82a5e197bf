"""Selection rules: each decides which (candidate, example) pair to evaluate next."""

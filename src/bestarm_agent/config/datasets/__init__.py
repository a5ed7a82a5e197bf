"""Read datasets and gold labels."""

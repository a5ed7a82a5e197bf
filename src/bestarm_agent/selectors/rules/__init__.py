"""Selection rules, one file each."""

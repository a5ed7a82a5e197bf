"""The rule ``auto``: duels on a model of the examples that candidates have in common."""

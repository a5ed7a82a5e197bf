"""The ray adapter: another provider's engine, in actors on the machines of a Ray cluster."""

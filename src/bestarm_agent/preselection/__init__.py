"""Choosing the candidates to run for a prompt, learned from earlier winners."""

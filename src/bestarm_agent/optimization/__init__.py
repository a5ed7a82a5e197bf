"""Prompts that a function proposes, tried in rounds."""

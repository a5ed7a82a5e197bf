"""Prompt templates: load, check, render."""

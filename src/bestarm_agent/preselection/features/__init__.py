"""Numbers that describe prompts."""

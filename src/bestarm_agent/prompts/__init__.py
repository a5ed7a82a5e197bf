"""How prompt templates are checked and rendered."""

"""YAML with line numbers, and messages that name file, line and nearest valid key."""

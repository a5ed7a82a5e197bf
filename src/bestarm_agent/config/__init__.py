"""What a study is configured by: pydantic models, YAML with line numbers, grid expansion."""

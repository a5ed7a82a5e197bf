"""Configuration of studies: YAML with line numbers, validation, grid expansion, datasets."""

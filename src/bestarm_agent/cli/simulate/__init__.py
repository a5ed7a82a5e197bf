"""`bestarm-agent simulate`."""

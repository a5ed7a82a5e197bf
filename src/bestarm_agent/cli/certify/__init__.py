"""`bestarm-agent certify`."""

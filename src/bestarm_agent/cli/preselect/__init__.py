"""`bestarm-agent preselect`."""

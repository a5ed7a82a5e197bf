"""Plug-ins for bestarm-agent: a selection rule, a provider and a judge."""

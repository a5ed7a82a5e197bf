"""Plug-ins for bestarm-agent: a selection rule, a provider, a judge and a store."""

"""Ledger, limits, retries and dispatch: how pairs become calls."""

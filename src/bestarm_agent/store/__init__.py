"""Stores keep what survives a crash: the event log of every run and the reply cache."""

"""Intervals, betting, low-rank models and keyed randomness; numpy and scipy only."""

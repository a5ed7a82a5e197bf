"""Certification on real calls: a study whose question is which candidate is good enough."""

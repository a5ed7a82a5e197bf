"""Certification on stored tables of losses."""

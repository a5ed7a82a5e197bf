"""Conformance suites for those who write selectors, providers, judges or stores."""

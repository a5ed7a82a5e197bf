"""Find what other distributions add: selectors, providers, judges."""

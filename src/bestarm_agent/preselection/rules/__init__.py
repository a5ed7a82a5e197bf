"""Rules that choose k arms for a context and learn from which of them won."""

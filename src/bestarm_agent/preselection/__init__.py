"""Which k arms to run for this context, learnt from which of them won."""

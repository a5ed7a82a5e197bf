"""Rate limits, concurrency limits and the reasons for waiting."""

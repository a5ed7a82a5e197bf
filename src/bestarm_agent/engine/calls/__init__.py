"""One call: reply cache, budget reservation, retries, judge calls."""

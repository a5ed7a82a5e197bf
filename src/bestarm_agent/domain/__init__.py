"""What the product talks about: candidates, examples, requests, outcomes, spending, events."""

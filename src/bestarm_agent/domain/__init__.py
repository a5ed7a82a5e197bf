"""The values of the domain: candidates, examples, requests, outcomes, spending, events."""

"""The openai and anthropic adapters: requests, replies, prices and errors of HTTP APIs."""

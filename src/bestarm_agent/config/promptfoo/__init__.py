"""Read configs of promptfoo as studies."""

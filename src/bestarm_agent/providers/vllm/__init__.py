"""The vllm adapter: vLLM servers, started here or already running."""

"""The hf adapter: transformers models in this process."""

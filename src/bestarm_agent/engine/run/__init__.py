"""The run loop: ask, dispatch, evaluate, tell."""

"""Which candidates to run for a prompt, learnt from which of them won before."""

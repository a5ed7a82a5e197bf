"""A local page over stores: runs as they go on, their answers, labels by hand."""

"""Hardware: GPUs, links and servers, as facts with sources and as a graph with routes."""

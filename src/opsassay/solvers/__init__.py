"""What answers: methods and agents, the sandbox they run in, the proxy that records their calls."""

"""What a scenario asks of a cluster: what it deploys, names that it leaves open, objects that it changes or waits for."""

"""The search for faults of a system on a cluster: environment, guard, building blocks and scripted operator."""

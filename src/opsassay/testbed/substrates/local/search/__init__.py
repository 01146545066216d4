"""The search for faults of a local system: environment, guard, building blocks and scripted operator."""

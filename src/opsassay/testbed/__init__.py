"""Systems to break: substrates, apps, faults, load, recording."""

"""What runs inside the processes of a local system: the service runtime, the relay, the load generator."""

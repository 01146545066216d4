"""What the Linux kernel lends the `namespaced` level: network namespaces, bridges, packet rules and queues, cgroups."""

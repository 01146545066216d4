"""Linux kernel features of the `namespaced` level: network namespaces, bridges, packet rules and queues, cgroups."""

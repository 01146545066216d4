"""What an agent may do on a cluster, by what, and what it did."""

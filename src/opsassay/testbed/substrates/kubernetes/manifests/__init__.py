"""What the cluster is given: the one image, a system as objects, roles."""

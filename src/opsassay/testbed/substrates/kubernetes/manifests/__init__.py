"""What is created on the cluster: the one image, a system as objects, roles."""

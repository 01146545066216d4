"""Systems on a Kubernetes cluster: any kubeconfig, namespaces of our own, the standard API only."""

"""A real Kubernetes cluster for tests, without a container engine: binaries from Debian's sources, nodes as namespaces.

Root on Debian 12 only: `python -m tests.kubernetes.native build|start|stop|status|node`. docs/kubernetes.md tells what is
emulated.
"""

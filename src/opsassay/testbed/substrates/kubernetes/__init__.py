"""Systems on a Kubernetes cluster: any kubeconfig, namespaces of our own, the standard API only.

Begin with `substrate.py`, which starts and removes systems, and `running.py`, the handle on one; `observer.py` writes its
timeline, `settings.py` is what a plan says about the cluster. Beneath them, each folder importing only those after it:
`access`, `scenario`, `actuators`, `agent`, `endpoints`, `manifests`, `api`.
"""

"""The one image that everything of ours on a cluster runs: services, stores, load, receiver, probe.

Built in the root of the checkout from the Dockerfile beside this file, by the command that docs/kubernetes.md has and
``make kind-up`` runs (docker, podman, or any builder); then loaded into the cluster (``kind load docker-image``), or pushed
to a registry under a name that is given to ``opsassay system render --image``.
"""

from opsassay import __version__

IMAGE = f"opsassay-runtime:{__version__}"
"""What manifests name when no other image is given; the one place where it is named."""

if __name__ == "__main__":
    print(IMAGE)  # for the Makefile

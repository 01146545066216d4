"""The one image that everything of ours on a cluster runs: services, stores, load, receiver, probe.

Built in the root of the checkout by ``docker build -t assay-runtime:VERSION -f src/assay/testbed/kubernetes/Dockerfile .``
(or podman, or any builder), and loaded into the cluster (``kind load docker-image``) or pushed to a registry under a name
that is then given to ``assay render --image``.
"""

from assay import __version__

IMAGE = f"assay-runtime:{__version__}"
"""What manifests name when no other image is given; the one place where it is named."""

if __name__ == "__main__":
    print(IMAGE)  # for the Makefile

"""Runs fetchers: bash scripts with the real kubectl, in a sandbox with an API server that serves a test cluster."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from opsassay.core.errors import UserError
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld
from opsassay.evals.compliance.evidence_collection.evidence import LIMITS, CollectedEvidence, collected_in
from opsassay.solvers.sandbox import Ended, Sandbox, SandboxLimits
from opsassay.testbed.substrates.kubernetes.api.serving import serving_objects
from opsassay.testbed.substrates.kubernetes.api.small_api import write_kubeconfig

FETCHER = "fetcher.sh"
_PORT = 8001
_PLACE = "/opt/opsassay-kubectl/kubectl"
_SOCKET = "api"


def gather_on_cluster(
    files: Mapping[str, bytes], world: ComplianceWorld, limits: SandboxLimits = LIMITS
) -> CollectedEvidence:
    """Run the fetcher script among *files* on a test cluster; return its evidence. Raises StartError."""
    with TemporaryDirectory(prefix="opsassay-cluster-") as made:
        end, work = fetch_on_cluster(files[FETCHER], world, Path(made), limits)
        return collected_in(work, end)


def fetch_on_cluster(
    fetcher: bytes, world: ComplianceWorld, folder: Path, limits: SandboxLimits = LIMITS
) -> tuple[Ended, Path]:
    """Run the bash script *fetcher* in a sandbox in *folder*, with an API server that serves the test cluster *world*.

    Return how it ended and its work folder. Raises StartError when no sandbox can be made, UserError without kubectl.
    """
    view, work = folder / "view", folder / "work"
    for made in (view, work):
        made.mkdir()
    (work / FETCHER).write_bytes(fetcher)
    write_kubeconfig(view / "kubeconfig.yaml", f"http://127.0.0.1:{_PORT}")
    environment = {
        "KUBECONFIG": "/view/kubeconfig.yaml",
        "PATH": f"{Path(_PLACE).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 - the seal's own
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    with serving_objects(world.objects, socket=folder / f"{_SOCKET}.sock"):
        seal = Sandbox(
            view, work, {_SOCKET: folder / f"{_SOCKET}.sock"}, {_PORT: _SOCKET}, limits, environment,
            readable={_PLACE: _find_kubectl()},
        )  # fmt: skip
        return seal.run(["bash", FETCHER]), work


def _find_kubectl() -> Path:
    """Return the path of kubectl on this machine; raises UserError when it is not installed."""
    found = shutil.which("kubectl")
    if found is None:
        raise UserError(
            "There is no kubectl, which fetchers ask clusters with; install it (Debian: apt install kubernetes-client)."
        )
    return Path(found)

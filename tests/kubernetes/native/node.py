"""One worker: a network and a mount namespace with a containerd, a kubelet, a kube-proxy and a policy agent of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.daemons import Daemons, run, wait_for
from tests.kubernetes.native.images import BOX_IMAGE

if TYPE_CHECKING:
    from tests.kubernetes.native.control_plane import ControlPlane

GROUPS = Path("/sys/fs/cgroup")
CPU_SHARES = "16384"
"""What all pods of a node weigh together; beside them every other process of this machine counts 1024 by itself."""
SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_TIMEOUT_S = 400.0


class Node:
    """The worker *name*, the *number*th; its pods have control groups under *group*."""

    def __init__(self, name: str, number: int, folder: Path, cache: Cache, daemons: Daemons, group: str) -> None:
        self.name, self.number, self.cache, self.daemons = name, number, cache, daemons
        self.folder = folder / name
        self.group = f"{group}/{name}"
        self.address = f"10.77.0.{10 + number}"
        self.pods = f"10.244.{number}.0/24"
        self.holder = 0

    def prepare(self) -> None:
        """Make the node's namespaces, network, control groups and files, and start its containerd."""
        for part in ("lib/cni", "lib/kubelet", "log"):
            (self.folder / part).mkdir(parents=True)
        copy_containerd(self.cache.containerd, self.folder / "lib/containerd")
        self.holder = self.daemons.start(
            f"{self.name}-holder", ["unshare", "--mount", "--net", str(self.cache.binaries / "box"), "pause"]
        )
        outside = Path("/proc/self/ns/net").readlink()
        wait_for(lambda: Path(f"/proc/{self.holder}/ns/net").readlink() != outside, 5, "a namespace of its own")
        wait_for(lambda: Path(f"/proc/{self.holder}/comm").read_text().strip() == "box", 5, "held")
        self._mounts()
        self._network()
        self._groups()
        self._write_config()
        self.daemons.start(
            f"{self.name}-containerd", ["containerd", "-c", str(self.folder / "containerd.toml")], inside=self.holder
        )
        wait_for(self._serving, CONTAINERD_TIMEOUT_S, f"containerd of {self.name} serving")

    def start(self, control_plane: ControlPlane) -> None:
        """Start what needs the API server."""
        binaries, proxy = self.cache.binaries, control_plane.kubeconfig("system:kube-proxy")
        self.daemons.start(f"{self.name}-kubelet", [
            str(binaries / "kubelet"), f"--config={self.folder / 'kubelet.yaml'}",
            f"--kubeconfig={control_plane.kubeconfig(f'system:node:{self.name}')}",
            f"--hostname-override={self.name}", f"--node-ip={self.address}",
            "--container-runtime=remote", f"--container-runtime-endpoint=unix://{SOCKET}",
            "--housekeeping-interval=30s",
        ], inside=self.holder)  # fmt: skip
        self.daemons.start(f"{self.name}-kube-proxy", [
            str(binaries / "kube-proxy"), f"--kubeconfig={proxy}", f"--hostname-override={self.name}",
            "--cluster-cidr=10.244.0.0/16", "--proxy-mode=iptables", "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
        ], inside=self.holder)  # fmt: skip
        self.daemons.start(f"{self.name}-policies", [
            str(binaries / "box"), "policies", f"--node={self.name}", "--server=https://10.77.0.1:6443",
            f"--token={control_plane.token_file('policies')}", f"--ca={control_plane.certificates / 'ca.crt'}",
        ], inside=self.holder)  # fmt: skip

    def _inside(self, *command: str) -> None:
        run("nsenter", f"--net=/proc/{self.holder}/ns/net", f"--mount=/proc/{self.holder}/ns/mnt", "--", *command)

    def _mounts(self) -> None:
        """Give the node a /run, /var/lib and /var/log of its own; volumes must spread from kubelet to containers."""
        self._inside("mount", "--make-rshared", "/")
        self._inside("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
        self._inside("mount", "--bind", str(self.folder / "lib"), "/var/lib")
        self._inside("mount", "--bind", str(self.folder / "log"), "/var/log")

    def _network(self) -> None:
        peer = f"up{self.number}"
        run("ip", "link", "add", peer, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder))
        run("ip", "link", "set", peer, "master", "fabric", "up")
        run("ip", "route", "add", self.pods, "via", self.address)
        commands = [
            "link set lo up",
            f"addr add {self.address}/16 dev eth0",
            "link set eth0 up",
            "route add default via 10.77.0.1",
        ]
        others = (number for number in range(1, 17) if number != self.number)
        commands += [f"route add 10.244.{other}.0/24 via 10.77.0.{10 + other}" for other in others]
        batch = self.folder / "network.ip"
        batch.write_text("\n".join(commands) + "\n")
        self._inside("ip", "-batch", str(batch))
        self._inside("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; "
                     "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables")  # fmt: skip

    def _groups(self) -> None:
        """Make the node's control group in every hierarchy; a set of processors must be filled before it can be used."""
        for hierarchy in GROUPS.iterdir():
            if hierarchy.is_symlink() or not (hierarchy / "cgroup.procs").exists() or hierarchy.name == "unified":
                continue
            group = hierarchy
            for part in self.group.split("/"):
                group = group / part
                group.mkdir(exist_ok=True)
                for name in ("cpuset.cpus", "cpuset.mems") if hierarchy.name == "cpuset" else ():
                    (group / name).write_text((group.parent / name).read_text())
            if hierarchy.name == "cpu":
                (group / "cpu.shares").write_text(CPU_SHARES)
                (group.parent / "cpu.shares").write_text(CPU_SHARES)

    def _write_config(self) -> None:
        bridge = {
            "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }  # fmt: skip
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
        }
        (self.folder / "cni").mkdir()
        (self.folder / "cni/10-pods.conflist").write_text(json.dumps(network))
        (self.folder / "containerd.toml").write_text(containerd_config(self.cache, self.folder / "cni"))
        (self.folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        config: dict[str, Any] = {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "nodeStatusUpdateFrequency": "2s",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
            "oomScoreAdj": 0,
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.folder / "resolv.conf"),
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            "serializeImagePulls": False,
            "registryPullQPS": 0,
            "maxPods": 110,
        }
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(config))

    def _serving(self) -> bool:
        self.daemons.check()
        try:
            self._inside("ctr", "-a", SOCKET, "version")
        except RuntimeError:
            return False
        return True


def containerd_config(cache: Cache, networks: Path) -> str:
    """Return the configuration of a containerd that finds everything under /run and /var/lib."""
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [{", ".join(f'"io.containerd.snapshotter.v1.{name}"' for name in ("btrfs", "devmapper", "zfs"))}]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{BOX_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cache.system}/usr/lib/cni"
    conf_dir = "{networks}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def copy_containerd(source: Path, target: Path) -> None:
    """Copy a containerd root: what is unpacked is linked, since containers never write there; databases are copied."""
    run("cp", "--archive", "--link", str(source), str(target))
    for database in target.rglob("*.db"):
        original = source / database.relative_to(target)
        database.unlink()
        shutil.copy2(original, database)

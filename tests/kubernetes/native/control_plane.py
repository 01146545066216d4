"""etcd, API server, controller manager and scheduler, and the API calls that the keeper itself needs."""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.daemons import Daemons, run, wait_for

ADDRESS = "10.77.0.1"
SERVICES = "10.96.0.0/16"
PODS = "10.244.0.0/16"
NAME_SERVICE = "10.96.0.10"
READY_TIMEOUT_S = 400.0
VALID = ("-days", "30")
PATIENT = ("--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=100s")
"""There is one of each; on a machine that is busy for half a minute it is not to give up and end."""

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"]},
        {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]},
        {"level": "Request", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
    ],
}
"""What is written to the audit log: the writes of people and programs, with what they asked for."""


class ControlPlane:
    """The control plane in the keeper's own network namespace; *port* is where this machine reaches it."""

    def __init__(self, folder: Path, cache: Cache, daemons: Daemons, port: int) -> None:
        self.folder, self.cache, self.daemons, self.port = folder, cache, daemons, port
        self.certificates = folder / "pki"
        self.tokens: dict[str, str] = {}

    def start(self, listener: int) -> None:
        """Start everything and wait until the API server is ready."""
        self._etcd()
        self._write_certificates()
        self._api_server()
        self.daemons.start(
            "relay", [str(self.cache.binaries / "box"), "relay", str(listener), f"{ADDRESS}:6443"], inherit=(listener,)
        )
        wait_for(self._ready, READY_TIMEOUT_S, "the API server ready")
        self._controllers()

    def kubeconfig(self, user: str, server: str = f"https://{ADDRESS}:6443") -> Path:
        """Return a kubeconfig of *user*, whose token was drawn when the control plane was written."""
        path = self.folder / f"{user.replace(':', '-')}.yaml"
        if not path.exists():
            authority = str(self.certificates / "ca.crt")
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {"name": "opsassay-native", "cluster": {"server": server, "certificate-authority": authority}}
                ],
                "users": [{"name": user, "user": {"token": self.tokens[user]}}],
                "contexts": [{"name": "opsassay-native", "context": {"cluster": "opsassay-native", "user": user}}],
                "current-context": "opsassay-native",
            }
            path.write_text(yaml.safe_dump(config))
            path.chmod(0o600)
        return path

    def token_file(self, user: str) -> Path:
        """Return a file that holds the token of *user*."""
        path = self.folder / f"{user.replace(':', '-')}.token"
        path.write_text(self.tokens[user])
        return path

    def admit(self, node: str, pods: str) -> None:
        """Register *node* with its range of pod addresses before its kubelet comes."""
        room = {"capacity": {"pods": "110"}, "allocatable": {"pods": "110"}}  # without any, this kubelet crashes
        body = {"metadata": {"name": node}, "spec": {"podCIDR": pods, "podCIDRs": [pods]}, "status": room}
        self.request("POST", "/api/v1/nodes", body)

    def ready_nodes(self) -> set[str]:
        """Return the names of the nodes that are Ready."""
        self.daemons.check()
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        return {
            node["metadata"]["name"]
            for node in nodes
            for condition in node["status"].get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
        }

    def names_ready(self) -> bool:
        """Tell whether the cluster's DNS answers."""
        self.daemons.check()
        names = self.request("GET", "/apis/apps/v1/namespaces/kube-system/deployments/coredns")
        return names.get("status", {}).get("readyReplicas", 0) >= 1

    def apply(self, objects: list[dict[str, Any]]) -> None:
        """Create *objects* as an administrator would."""
        kubectl = [
            str(self.cache.binaries / "kubectl"),
            f"--kubeconfig={self.folder / 'inside.yaml'}",
            "apply",
            "-f",
            "-",
        ]
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        done = subprocess.run(kubectl, input=json.dumps(listed), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send one request to the API and return the object that it answers with."""
        request = urllib.request.Request(f"https://{ADDRESS}:6443{path}", method=method)
        request.add_header("Authorization", f"Bearer {self.tokens['admin']}")
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        context = ssl.create_default_context(cafile=str(self.certificates / "ca.crt"))
        with urllib.request.urlopen(request, data, context=context, timeout=10) as answer:
            raw = answer.read()
        return json.loads(raw) if raw[:1] == b"{" else raw.decode()

    def _ready(self) -> bool:
        self.daemons.check()
        try:
            return bool(self.request("GET", "/readyz") == "ok")
        except (OSError, urllib.error.URLError):
            return False

    def _etcd(self) -> None:
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        self.daemons.start("etcd", [
            "etcd", f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync", "--log-level=warn",
        ])  # fmt: skip

    def _api_server(self) -> None:
        users = {
            "admin": "system:masters",
            "system:kube-controller-manager": "",
            "system:kube-scheduler": "",
            "system:kube-proxy": "system:node-proxier",
            "policies": "system:masters",
            **{f"system:node:worker{number}": "system:nodes" for number in range(1, 17)},
        }
        self.tokens = {user: secrets.token_hex(16) for user in users}
        lines = [
            f"{self.tokens[user]},{user},{user}" + (f',"{group}"' if group else "") for user, group in users.items()
        ]
        tokens = self.folder / "tokens.csv"
        tokens.write_text("\n".join(lines) + "\n")
        tokens.chmod(0o600)
        (self.folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT))
        pki = self.certificates
        self.daemons.start("kube-apiserver", [
            str(self.cache.binaries / "kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=0.0.0.0", f"--advertise-address={ADDRESS}", "--secure-port=6443",
            f"--cert-dir={pki}", f"--tls-cert-file={pki / 'server.crt'}", f"--tls-private-key-file={pki / 'server.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-cluster-ip-range={SERVICES}",
            f"--token-auth-file={tokens}", "--authorization-mode=Node,RBAC",
            f"--service-account-key-file={pki / 'sa.key'}", f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--allow-privileged=true", "--enable-admission-plugins=NodeRestriction,PodSecurityPolicy",
            "--default-not-ready-toleration-seconds=30", "--default-unreachable-toleration-seconds=30",
            f"--audit-policy-file={self.folder / 'audit.yaml'}", f"--audit-log-path={self.folder / 'audit.log'}",
            "--profiling=false",
        ])  # fmt: skip
        self.kubeconfig("admin", f"https://127.0.0.1:{self.port}")  # the door for this machine's users
        inner = self.folder / "inside.yaml"
        inner.write_text((self.folder / "admin.yaml").read_text().replace(f"127.0.0.1:{self.port}", f"{ADDRESS}:6443"))
        inner.chmod(0o600)

    def _controllers(self) -> None:
        pki = self.certificates
        self.daemons.start("kube-controller-manager", [
            str(self.cache.binaries / "kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig('system:kube-controller-manager')}",
            "--use-service-account-credentials=true", f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--root-ca-file={pki / 'ca.crt'}", "--allocate-node-cidrs=false",
            "--node-monitor-grace-period=12s", "--node-monitor-period=2s", "--profiling=false", *PATIENT,
        ])  # fmt: skip
        self.daemons.start("kube-scheduler", [
            str(self.cache.binaries / "kube-scheduler"),
            f"--kubeconfig={self.kubeconfig('system:kube-scheduler')}", "--profiling=false", *PATIENT,
        ])  # fmt: skip

    def _write_certificates(self) -> None:
        pki = self.certificates
        pki.mkdir(mode=0o700)
        names = ["DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc", "DNS:localhost"]
        names += [f"IP:{address}" for address in ("127.0.0.1", ADDRESS, "10.96.0.1")]
        elliptic = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        authority, server = ("-CA", f"{pki}/ca.crt", "-CAkey", f"{pki}/ca.key", "-CAcreateserial"), f"{pki}/server"
        run("openssl", "req", "-x509", *elliptic, *VALID, "-keyout", f"{pki}/ca.key", "-out", f"{pki}/ca.crt",
            "-subj", "/CN=opsassay-native")  # fmt: skip
        (pki / "names").write_text(f"subjectAltName={','.join(names)}\n")
        run(
            "openssl",
            "req",
            *elliptic,
            "-keyout",
            f"{server}.key",
            "-out",
            f"{server}.csr",
            "-subj",
            "/CN=kube-apiserver",
        )
        run("openssl", "x509", "-req", "-in", f"{server}.csr", *authority, *VALID, "-extfile", f"{pki}/names",
            "-out", f"{server}.crt")  # fmt: skip
        run("openssl", "genrsa", "-out", f"{pki}/sa.key", "2048")

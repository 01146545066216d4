"""What an agent may ask of kubectl, and what it may not: hostile calls are refused before anything is run."""

from __future__ import annotations

import json
import re
import stat
import time

import pytest

from opsassay.core.errors import OperationError, UserError
from opsassay.testbed.substrates.kubernetes.access.executed import touched_by
from opsassay.testbed.substrates.kubernetes.access.kubectl import OUTPUT_BYTES, Kubectl, parse_kubectl, require_near

ALLOWED = [
    ("get pods", "get pods", False),
    ("get pods -n shop -o wide", "get pods --namespace=shop --output=wide", False),
    ("get pods -A", "get pods --all-namespaces", False),
    ("get --raw /readyz?verbose", "get --raw=/readyz?verbose", False),
    ("kubectl describe deployment web", "describe deployment web", False),
    ("logs web-1 -p --tail 20 -c web", "logs web-1 --previous --tail=20 --container=web", False),
    ("rollout status deployment/web --timeout=30s", "rollout status deployment/web --timeout=30s", False),
    ("rollout undo deployment/web", "rollout undo deployment/web", True),
    ("auth can-i delete pods", "auth can-i delete pods", False),
    ("patch service auth -p {}", "patch service auth --patch={}", True),
    ("delete pods --all --wait=false", "delete pods --all --wait=false", True),
    ("apply -f -", "apply --filename=-", True),
    ("exec -it web-1 -- sh -c --kubeconfig=/x", "exec web-1 -- sh -c --kubeconfig=/x", True),
    ("taint node worker1 disk-full-", "taint node worker1 disk-full-", True),
    ("set env deployment/web -e A=B", "set env deployment/web --env=A=B", True),
    ("get pods -n --kubeconfig=/x", "get pods --namespace=--kubeconfig=/x", False),
]


@pytest.mark.parametrize(("words", "written", "changes"), ALLOWED)
def test_what_is_allowed_is_written_out_in_full(words, written, changes):
    request = parse_kubectl(words.split(), has_input=True)
    assert " ".join(request.arguments) == written
    assert request.changes is changes


HOSTILE = [
    "",
    "--kubeconfig=/root/.kube/config get pods",
    "get pods --kubeconfig=/root/.kube/config",
    "get pods --kubeconfig /root/.kube/config",
    "get secrets --as=system:admin",
    "get secrets --as system:admin",
    "get secrets --as-group=system:masters",
    "get pods --token=abc",
    "get pods --server=https://elsewhere",
    "get pods -s https://elsewhere",
    "get pods -shttps://elsewhere",
    "get pods --user=admin",
    "get pods --cluster=other",
    "get pods --context=other",
    "get pods --certificate-authority=/etc/passwd",
    "get pods --client-key=/root/.ssh/id_rsa",
    "get pods --client-certificate=/x",
    "get pods --username=a --password=b",
    "get pods --insecure-skip-tls-verify",
    "get pods --cache-dir=/etc",
    "get pods --profile=cpu --profile-output=/etc/x",
    "get pods --log-file=/etc/x",
    "get pods --log-dir=/etc",
    "get pods -v=9",
    "get pods --v 9",
    "get pods --dry-run --kubeconfig=/x",
    "get pods -w",
    "get pods --watch",
    "get pods -o jsonpath-file=/etc/passwd",
    "get pods -o go-template-file=/etc/passwd",
    "get pods -o templatefile=/etc/passwd",
    "get pods -o custom-columns-file=/etc/passwd",
    "get pods -o=jsonpath-file=/etc/passwd",
    "get pods --template=/etc/passwd -o go-template-file",
    "apply -f /etc/passwd",
    "apply --filename=/etc/passwd",
    "apply -f=/etc/passwd",
    "apply -f/etc/passwd",
    "apply -f https://elsewhere/x.yaml",
    "apply -f - -f /etc/passwd",
    "apply -k /etc",
    "apply --kustomize=/etc",
    "apply edit-last-applied deployment/web",
    "replace --filename -- /etc/passwd",
    "create configmap x --from-file=/etc/passwd",
    "create configmap x --from-env-file=/etc/passwd",
    "create secret generic x --from-file=/etc/passwd",
    "patch deployment web --patch-file=/etc/passwd",
    "set env deployment/web --from=secret/db",
    "label -f /etc/passwd a=b",
    "describe -f /etc/passwd",
    "logs -f web-1",
    "logs web-1 --follow",
    "delete --raw=/api/v1/namespaces/kube-system",
    "create --raw=/api/v1/namespaces -f -",
    "edit deployment web",
    "cp web-1:/etc/passwd /tmp/x",
    "cp /etc/passwd web-1:/tmp/x",
    "port-forward web-1 8080:8080",
    "proxy --port=8001",
    "proxy --www=/",
    "attach web-1",
    "debug node/worker1 --image=busybox",
    "config view --raw",
    "config set-credentials me --token=x",
    "plugin list",
    "kustomize /etc",
    "diff -f -",
    "convert -f /etc/passwd",
    "certificate approve x",
    "alpha debug",
    "completion bash",
    "options",
    "cluster-info dump --output-directory=/etc",
    "auth reconcile -f -",
    "exec web-1 cat /etc/passwd",
    "exec web-1 --",
    "run x --image=busybox --attach",
    "run -it x --image=busybox --rm",
    "get pods\0 --kubeconfig=/x",
    "drain worker1 --pod-selector",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_what_is_hostile_is_refused(words):
    with pytest.raises(UserError):
        parse_kubectl(words.split(" ") if words else [], has_input=True)


def test_a_manifest_comes_with_the_call():
    with pytest.raises(UserError, match="needs the manifest in `input`"):
        parse_kubectl(["apply", "-f", "-"])


@pytest.fixture
def program(tmp_path):
    """Make a program in kubectl's place: what it is given, and what it finds, is what it prints."""

    def made(script):
        path = tmp_path / "kubectl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Kubectl(tmp_path / "config", str(path))

    return made


def test_it_is_run_with_its_own_credentials_and_nothing_of_this_machine(program, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/root/admin")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    said = program('echo "$@"; /usr/bin/env; /bin/pwd; /bin/cat').run(
        parse_kubectl(["apply", "-f", "-"], has_input=True), "a: 1"
    )
    lines = said.splitlines()
    assert lines[0] == f"--kubeconfig={tmp_path / 'config'} apply --filename=-"
    assert not [line for line in lines if line.startswith(("KUBECONFIG", "ANTHROPIC", "SSH"))]
    home = next(line.removeprefix("HOME=") for line in lines if line.startswith("HOME="))
    assert f"PATH={home}" in lines, "there is nothing that it could start"
    assert home in lines, "it works in its own folder"
    assert lines[-1] == "a: 1"


def test_a_failure_is_told_in_its_own_words_and_time_is_bounded(program):
    with pytest.raises(OperationError, match=r"kubectl get ended with 3:\nno such thing"):
        program("echo no such thing >&2; exit 3").run(parse_kubectl(["get", "x"]))
    began = time.monotonic()
    with pytest.raises(OperationError, match=r"kubectl get was ended after 0.5 s; it had printed:\nbegun"):
        program("echo begun; exec /bin/sleep 60").run(parse_kubectl(["get", "x"]), timeout_s=0.5)
    assert time.monotonic() - began < 10


def test_an_output_without_end_is_cut(program):
    said = program("/usr/bin/head -c 3000000 /dev/zero | /usr/bin/tr '\\\\0' x").run(
        parse_kubectl(["get", "x"]), timeout_s=20
    )
    assert len(said) == OUTPUT_BYTES


def test_a_program_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="There is no kubectl-none"):
        Kubectl(tmp_path, "kubectl-none")


@pytest.mark.parametrize(
    ("own", "server", "words"),
    [
        ("v1.20.2", "v1.20.15", None),
        ("v1.28.0", "v1.27.3-gke.100", None),
        ("v1.27.1", "v1.28.4+k3s1", None),
        ("v1.33.0", "v1.20.2", "v1.33.0 and the server v1.20.2, more than one minor version apart"),
        ("v2.20.0", "v1.20.2", "more than one minor version apart"),
        ("nonsense", "v1.20.2", "does not tell its version"),
    ],
)
def test_a_kubectl_that_is_not_the_servers_is_refused(tmp_path, own, server, words):
    program = tmp_path / "kubectl"
    told = json.dumps({"clientVersion": {"gitVersion": own}})
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'version --client --output=json' ] && echo '{told}'\n")
    program.chmod(0o755)
    if words is None:
        require_near(str(program), server)
        return
    with pytest.raises(UserError, match=re.escape(words)):
        require_near(str(program), server)


def test_a_kubectl_that_is_not_there_is_named():
    with pytest.raises(UserError, match="There is no kubectl-of-nobody; install kubectl"):
        require_near("kubectl-of-nobody", "v1.20.2")


@pytest.mark.parametrize(
    ("words", "touched"),
    [
        (["web-1", "--", "cat", "/etc/hosts"], ()),
        (["web-1", "--", "curl", "-s", "http://pay:8080/"], ()),
        (["web-1", "--", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://pay:8080/"], ()),
        (["web-1", "--", "wget", "-qO-", "http://pay.shop:8080/"], ()),
        (["web-1", "--", "curl", "-X", "POST", "http://pay:8080/orders"], ("pay",)),
        (["web-1", "--", "curl", "-XDELETE", "http://pay.shop.svc:8080/orders"], ("pay",)),
        (["web-1", "--", "curl", "--request=PUT", "http://pay:8080/"], ("pay",)),
        (["web-1", "--", "curl", "-d", "a=1", "http://pay:8080/"], ("pay",)),
        (["web-1", "--", "curl", "--data-raw", "x", "http://pay:8080/"], ("pay",)),
        (["web-1", "--", "curl", "-sd", "x", "http://pay:8080/"], ("pay",)),
        (["web-1", "--", "curl", "-o", "/etc/passwd", "http://pay:8080/"], ("web-1",)),
        (["web-1", "--", "curl", "-o/etc/passwd", "http://pay:8080/"], ("web-1",)),
        (["web-1", "--", "curl", "-o", "/dev/null", "-o", "/etc/passwd", "http://pay:8080/"], ("web-1",)),
        (["web-1", "--", "wget", "http://pay:8080/"], ("web-1",)),
        (["web-1", "--", "wget", "-O", "-", "http://pay:8080/"], ()),
        (["pod/web-1", "-c", "web", "--", "/bin/sh", "-c", "curl http://pay:8080/"], ("web-1",)),
        (["deploy/web", "--", "kill", "1"], ("web",)),
        (["web-1", "--", "nohup", "sleep", "60"], ("web-1",)),
        (["web-1", "--", "env"], ()),
        (["web-1", "--", "env", "kill", "1"], ("web-1",)),
    ],
)
def test_what_a_command_in_a_pod_may_change_is_touched(words, touched):
    assert touched_by(parse_kubectl(["exec", *words]).arguments) == touched

"""Builds the cluster's programs from source, once; a build that was interrupted goes on where it was."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.kubernetes.native.cache import BINARIES, VERSION, Cache
from tests.kubernetes.native.images import unpack_images
from tests.kubernetes.native.packages import fetch_packages, fetch_source

BOX = Path(__file__).parent / "box"


def build(cache: Cache) -> None:
    """Make everything that a cluster starts from: packages, programs, images."""
    cache.binaries.mkdir(parents=True, exist_ok=True)
    _step("Debian packages", lambda: fetch_packages(cache))
    wanted = [name for name in BINARIES if not (cache.binaries / name).exists()]
    if wanted:
        _step("Kubernetes's source", lambda: fetch_source(cache))
        _step("its generated code", lambda: _generate(cache))
        for name in wanted:
            _step(name, lambda name=name: _compile(cache, name))  # type: ignore[misc]
    _step("the test programs", lambda: _compile_box(cache))
    _step("images", lambda: unpack_images(cache))
    for leftover in (cache.gopath, cache.gocache):
        shutil.rmtree(leftover, ignore_errors=True)


def _step(what: str, do: object) -> None:
    started = time.monotonic()
    print(f"{what} ...", file=sys.stderr, flush=True)
    assert callable(do)
    do()
    print(f"{what}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _go(cache: Cache, *, modules: bool = False) -> dict[str, str]:
    """Return the environment of Go: one package at a time, offline, GOPATH mode unless *modules*."""
    return {
        **cache.environment(),
        "GO111MODULE": "on" if modules else "off",
        "GOFLAGS": os.environ.get("GOFLAGS", "-p=1"),
        "GOROOT": str(cache.system / "usr/lib/go-1.19"),
        "GOPATH": str(cache.gopath),
        "GOCACHE": str(cache.gocache),
        "GOPROXY": "off",
        "CGO_ENABLED": "0",
    }


def _generate(cache: Cache) -> None:
    """Write the OpenAPI definitions, which Debian's source package does not hold."""
    tree = cache.gopath / "src/k8s.io/kubernetes"
    done = cache.gopath / ".generated"
    if not done.exists():
        subprocess.run(["make", "gen_openapi"], cwd=tree, env=_go(cache), check=True, stdout=subprocess.DEVNULL)
        done.touch()


def _compile(cache: Cache, name: str) -> None:
    stamps = {
        "gitVersion": f"v{VERSION}",
        "gitMajor": "1",
        "gitMinor": "20",
        "gitTreeState": "clean",
        "gitCommit": "debian",
    }
    packages = (
        "k8s.io/kubernetes/vendor/k8s.io/component-base/version",
        "k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version",
    )
    linking = " ".join(
        ["-s -w", *(f"-X {package}.{key}={value}" for package in packages for key, value in stamps.items())]
    )
    tags = ["-tags", "dockerless"] if name == "kubelet" else []
    _compile_to(
        cache.binaries / name,
        ["go", "build", "-trimpath", *tags, "-ldflags", linking],
        f"./cmd/{name}",
        cache.gopath / "src/k8s.io/kubernetes",
        _go(cache),
    )


def _compile_box(cache: Cache) -> None:
    """Compile our test programs when their source has changed since."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(BOX.iterdir()))).hexdigest()
    stamp = cache.binaries / "box.sha256"
    if stamp.exists() and stamp.read_text() == digest and (cache.binaries / "box").exists():
        return
    _compile_to(
        cache.binaries / "box", ["go", "build", "-trimpath", "-ldflags", "-s -w"], ".", BOX, _go(cache, modules=True)
    )
    stamp.write_text(digest)


def _compile_to(target: Path, command: list[str], package: str, folder: Path, environment: dict[str, str]) -> None:
    partial = target.with_name(f".{target.name}.partial")
    subprocess.run([*command, "-o", partial, package], cwd=folder, env=environment, check=True)
    partial.rename(target)

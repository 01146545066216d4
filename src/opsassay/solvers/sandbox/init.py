"""The inside of the sandbox: namespaces, a root with read-only system folders, and process 1, which reaps children.

As root, the init mounts as root and the agent becomes another user; as another user, the init is in a user namespace
already. In both cases the agent enters a further user namespace, so that it owns none of its other namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
from pathlib import Path
from typing import Any

from opsassay.solvers.sandbox import confine, kernel
from opsassay.solvers.sandbox.collect import copy_in

HOST = "/old"
"""The path of the machine's root while the new root is built."""

NEW = "/new"

NOTHING = "/nothing"
"""An empty folder, the lower layer of overlays over folders of the machine."""

COPIED_BYTES = 1 << 20
"""The size up to which files are copied instead of mounted; the new root has 16 MiB."""

SYSTEM_FOLDERS = (
    *(f"/usr/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share")),
    *(f"/usr/local/{name}" for name in ("bin", "sbin", "lib", "lib64", "libexec", "share")),
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"),
)

OWN_FOLDERS = frozenset({"/proc", "/sys", "/dev", "/tmp", "/work", "/view", "/run"})  # noqa: S108 - the seal's own
"""Folders that are never taken from another root."""

DEVICES = ("null", "zero", "full", "random", "urandom")

ETC = {
    "passwd": "root:x:0:0:root:/:/bin/false\nagent:x:1000:1000:agent:/work:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sealed\n::1 localhost\n",
    "hostname": "sealed\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "resolv.conf": "",
}

HIDDEN_IN_PROC = (
    "kcore",
    "keys",
    "key-users",
    "timer_list",
    "sched_debug",
    "kmsg",
    "kallsyms",
    "modules",
    "sysrq-trigger",
)

NAMESPACES = (
    kernel.NEW_MOUNTS | kernel.NEW_UTS | kernel.NEW_IPC | kernel.NEW_NETWORK | kernel.NEW_PID
)  # that of control groups follows, when init is in its group


def open_namespaces(plan: dict[str, Any], channel: socket.socket) -> None:
    """Fork the sandbox's first process in new namespaces, send its pid on *channel*, wait until it has ended."""
    kernel.die_with_parent(signal.SIGKILL)
    try:
        if plan["outer_uid"] is None:
            confine.enter_user_namespace(NAMESPACES)
            kernel.die_with_parent(signal.SIGKILL)
        else:
            kernel.unshare(NAMESPACES)
    except OSError as error:
        send_message(channel, {"refused": f"the kernel gives no namespaces ({error.strerror})"})
        return
    init = os.fork()
    if init == 0:
        try:
            _run_as_init(plan, channel)
        except BaseException as error:  # noqa: BLE001 - the last frame of a process; the warden tells it
            kind = "refused" if isinstance(error, PermissionError) else "failed"
            send_message(channel, {kind: str(error) or type(error).__name__})
        finally:
            os._exit(1)
    send_message(channel, {"init": init})
    os.waitpid(init, 0)


def send_message(channel: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
    """Send *message* as JSON, with file *descriptors*, to the other end of *channel*."""
    socket.send_fds(channel, [json.dumps(message).encode()], descriptors)


def _run_as_init(plan: dict[str, Any], channel: socket.socket) -> None:
    """Build the root, wait for the supervisor's signal, run the agent as a child and report its end on *channel*."""
    kernel.die_with_parent(signal.SIGKILL)
    kernel.set_dumpable(dumpable=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # the kernel drops what process 1 does not handle
    socket.sethostname("sealed")
    kernel.raise_loopback()
    _build_root(plan)
    listeners = _listen(plan)
    _enter_root()
    work = os.open("/work", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    send_message(channel, {"built": True}, (work, *(listener.fileno() for listener in listeners)))
    if not channel.recv(16):
        return  # the warden is gone
    os.close(work)
    for listener in listeners:
        listener.close()
    kernel.unshare(kernel.NEW_CGROUP)
    with contextlib.suppress(OSError):  # older kernels share one namespace of time, whose file can be locked
        kernel.unshare(kernel.NEW_TIME)
    send_message(channel, _run_agent(plan))


def _run_agent(plan: dict[str, Any]) -> dict[str, Any]:
    """Start the agent's process and wait for it; return its wait status, or why it did not start."""
    outer_uid = plan["outer_uid"]
    reader, writer = os.pipe()
    agent = os.fork()
    if agent == 0:
        try:
            if writer != confine.REPORT:
                os.dup2(writer, confine.REPORT, inheritable=False)
            confine.become_and_run(plan, outer_uid)
        except BaseException as error:  # noqa: BLE001 - the last frame of a process; the report tells it
            os.write(confine.REPORT, f"{type(error).__name__}: {error}".encode()[:4096])
        finally:
            os._exit(127)
    os.close(writer)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    if outer_uid is not None:
        os.setgroups([])
        os.setresgid(outer_uid + 1, outer_uid + 1, outer_uid + 1)
        os.setresuid(outer_uid + 1, outer_uid + 1, outer_uid + 1)
        kernel.die_with_parent(signal.SIGKILL)
    kernel.drop_capabilities()
    failure = os.read(reader, 4096)
    while True:
        pid, status = os.wait()
        if pid == agent:
            return {"unstarted": failure.decode(errors="replace")} if failure else {"status": status}


def _build_root(plan: dict[str, Any]) -> None:
    """Build the sandbox's root file system at `NEW` from that of the machine at `HOST`."""
    kernel.mount("none", "/", None, kernel.RECURSIVE | kernel.PRIVATE)
    plain = kernel.NO_SETUID | kernel.NO_DEVICES
    kernel.mount("seal", "/tmp", "tmpfs", plain, "mode=0755,size=1m")  # noqa: S108 - any folder that all machines have
    for name in (HOST, NEW):
        Path("/tmp" + name).mkdir()  # noqa: S108
    kernel.pivot_root("/tmp", "/tmp" + HOST)  # noqa: S108
    os.chdir("/")
    kernel.mount("seal", NEW, "tmpfs", plain, "mode=0755,size=16m")
    Path(NOTHING).mkdir()
    for folder in (
        "proc",
        "dev",
        "tmp",
        "work",
        "view",
        "etc",
        "run/opsassay",
        *(() if plan["root"] else ("usr/local",)),
    ):
        Path(NEW, folder).mkdir(parents=True, exist_ok=True)
    for name, text in ETC.items():
        Path(NEW, "etc", name).write_text(text, encoding="ascii")
    emptied = []
    if plan["root"]:
        _bind_root_tree(plan["root"], Path("/"), [Path(target) for target in plan["readable"]])
    else:
        for folder in SYSTEM_FOLDERS:
            _bind_readonly(folder, folder)
        if plan["python"]:
            _bind_readonly(plan["python"], plan["python"])
        emptied = _hide_paths(plan["hidden"])
    _mount_own(plan)
    _mount_devices(plan)
    _mount_proc()
    for target, source in plan["readable"].items():
        _bind_readonly(source, target)
        within = [path for path in plan["hidden"] if path != source and Path(path).is_relative_to(source)]
        emptied += _hide_paths([target + path.removeprefix(source) for path in within])
    for target in emptied:
        kernel.restrict(target, kernel.READ_ONLY)
    if plan["host"]:
        _add_files(Path(HOST + plan["host"]))


def _bind_root_tree(root: str, folder: Path, targets: list[Path]) -> None:
    """Bind *folder* of the tree *root* into the new root, without `OWN_FOLDERS` and the mount points *targets*."""
    for source in sorted(Path(HOST + root, folder.relative_to("/")).iterdir()):
        place, target = folder / source.name, Path(NEW, folder.relative_to("/"), source.name)
        if str(place) in OWN_FOLDERS or place in targets or (folder == Path("/etc") and source.name in ETC):
            continue
        if source.is_symlink():
            if not target.is_dir():
                target.symlink_to(source.readlink())
        elif place == Path("/etc") or any(one.is_relative_to(place) for one in targets):
            target.mkdir(exist_ok=True)
            _bind_root_tree(root, place, targets)
        else:
            _bind_readonly(f"{root}{place}", str(place))


def _bind_readonly(path: str, shown: str) -> None:
    """Bind-mount the machine's *path* read-only at *shown* in the new root; a missing path is skipped."""
    source, target = Path(HOST + path), Path(NEW + shown)
    if os.path.islink(source) and path == shown:  # noqa: PTH114 - those of os.path say no where they may not look
        if not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.readlink())
        return
    is_folder = os.path.isdir(source)  # noqa: PTH112
    if not os.path.exists(source) or (target.exists() and target.samefile(source)):  # noqa: PTH110
        return  # not there, or shown as a part of another folder
    (target if is_folder else target.parent).mkdir(parents=True, exist_ok=True)
    if not is_folder and source.stat().st_size <= COPIED_BYTES and _is_in_new_root(target):
        shutil.copyfile(source, target)
        target.chmod(source.stat().st_mode & 0o555)
        return
    if not is_folder:
        target.touch()
    if not (is_folder and _mount_layered(source, target)):
        kernel.mount(str(source), str(target), None, kernel.BIND | kernel.RECURSIVE)
    kernel.restrict(str(target), kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES, below=True)


def _mount_layered(source: Path, target: Path) -> bool:
    """Mount *source* read-only at *target* as an overlay; return False where that is not possible.

    An overlay has inodes of its own: locks and watches on its files do not reach processes outside. It does not show
    what is mounted below *source*, so such folders are refused.
    """
    if any(ord(sign) < 33 or sign in ":,\\" for sign in str(source)) or _holds_mounts(source):
        return False
    try:
        kernel.mount("seal", str(target), "overlay", kernel.READ_ONLY, f"lowerdir={NOTHING}:{source}")
    except OSError:
        return False
    return True


def _holds_mounts(folder: Path) -> bool:
    """Return whether a file system is mounted below *folder*."""
    below = f"{folder}/"
    rows = Path(HOST, "proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return any(row.split(" ", 5)[4].startswith(below) for row in rows)


def _add_files(tree: Path) -> None:
    """Copy the files of *tree* into the new root; where another mount covers the place, bind them read-only."""
    for path in sorted(tree.rglob("*")):
        target = Path(NEW, path.relative_to(tree))
        if path.is_dir():
            continue
        if target.exists() and not _is_in_new_root(target):
            kernel.mount(str(path), str(target), None, kernel.BIND)
            kernel.restrict(str(target), kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES)
        elif _is_in_new_root(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            target.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            os.utime(target, (0, 0))


def _is_in_new_root(target: Path) -> bool:
    """Return whether the nearest existing parent of *target* is on the new root's own file system."""
    there = target.parent
    while not there.exists():
        there = there.parent
    return there.stat().st_dev == Path(NEW).stat().st_dev


def _hide_paths(paths: list[str]) -> list[str]:
    """Mount an empty folder or file over each of *paths* that exists in the new root; return the mounts of folders."""
    emptied = []
    for path in paths:
        target = Path(NEW + path)
        if target.is_dir():
            kernel.mount("seal", str(target), "tmpfs", kernel.NO_SETUID | kernel.NO_DEVICES, "mode=0755,size=64k")
            emptied.append(str(target))
        elif target.exists():
            kernel.mount(HOST + "/dev/null", str(target), None, kernel.BIND)
    return emptied


def _mount_own(plan: dict[str, Any]) -> None:
    """Mount the run's own folders: view (read-only), work, tmp, and the folder of sockets."""
    limits, owner = plan["limits"], _owner_of_files(plan)
    plain = kernel.NO_SETUID | kernel.NO_DEVICES
    kernel.mount("seal", f"{NEW}/view", "tmpfs", plain, "mode=0755")
    copy_in(Path(HOST + plan["view"]), Path(NEW, "view"), time_s=0)
    kernel.restrict(f"{NEW}/view", kernel.READ_ONLY)
    bounded = f"size={limits['work_bytes']},nr_inodes={limits['work_files']}"
    kernel.mount("seal", f"{NEW}/work", "tmpfs", plain, f"mode=0700,{bounded}")
    copy_in(Path(HOST + plan["work"]), Path(NEW, "work"), owner=owner)
    os.chown(f"{NEW}/work", owner, owner)
    kernel.mount("seal", f"{NEW}/tmp", "tmpfs", plain, f"mode=1777,{bounded}")  # noqa: S108 - the seal's own
    kernel.mount("seal", f"{NEW}/run/opsassay", "tmpfs", plain, "mode=0755,size=64k")


def _mount_devices(plan: dict[str, Any]) -> None:
    """Make /dev: the listed devices, links to standard streams, limited shared memory, pseudo-terminals."""
    limits = plan["limits"]
    kernel.mount("seal", f"{NEW}/dev", "tmpfs", kernel.NO_SETUID | kernel.NO_EXEC, "mode=0755,size=64k")
    for name in DEVICES:
        _make_device(name)
    for name, target in {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        Path(NEW, "dev", name).symlink_to(f"/proc/self/{target}")
    Path(NEW, "dev/shm").mkdir()
    bounded = f"mode=1777,size={limits['work_bytes']},nr_inodes={limits['work_files']}"
    flags = kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXEC
    kernel.mount("seal", f"{NEW}/dev/shm", "tmpfs", flags, bounded)  # noqa: S108 - the seal's own
    Path(NEW, "dev/pts").mkdir()
    terminals = "newinstance,ptmxmode=0666,mode=0620,max=16"
    kernel.mount("seal", f"{NEW}/dev/pts", "devpts", kernel.NO_SETUID | kernel.NO_EXEC, terminals)
    Path(NEW, "dev/ptmx").symlink_to("pts/ptmx")
    kernel.restrict(f"{NEW}/dev", kernel.READ_ONLY)


def _make_device(name: str) -> None:
    """Make the device node *name* in the new root; where that is not allowed, bind the machine's."""
    machine, own = Path(HOST, "dev", name), Path(NEW, "dev", name)
    try:
        os.mknod(own, stat.S_IFCHR | 0o666, machine.stat().st_rdev)
        own.chmod(0o666)
        with own.open("rb"):  # a file system that lets devices be made may still not let them be used
            return
    except OSError:
        own.unlink(missing_ok=True)
    own.touch()
    kernel.mount(str(machine), str(own), None, kernel.BIND)


def _mount_proc() -> None:
    """Mount /proc of this pid namespace; users see only their own processes, kernel settings are hidden."""
    flags = kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXEC
    kernel.mount("seal", f"{NEW}/proc", "proc", flags, "hidepid=2")
    for name in ("sys/kernel/shmall", "sys/kernel/msgmni"):
        try:
            Path(NEW, "proc", name).write_text("65536" if name.endswith("shmall") else "64", encoding="ascii")
        except OSError:  # without root the kernel's own values stay
            continue
    for name in ("sys", "bus", "irq", "fs", "driver", "scsi", "acpi"):
        if Path(NEW, "proc", name).is_dir():
            kernel.mount(f"{NEW}/proc/{name}", f"{NEW}/proc/{name}", None, kernel.BIND | kernel.RECURSIVE)
            kernel.restrict(f"{NEW}/proc/{name}", kernel.READ_ONLY | flags, below=True)
    for name in HIDDEN_IN_PROC:
        if Path(NEW, "proc", name).exists():
            kernel.mount(f"{HOST}/dev/null", f"{NEW}/proc/{name}", None, kernel.BIND)


def _listen(plan: dict[str, Any]) -> list[socket.socket]:
    """Return the listening sockets of the sandbox: Unix sockets in the plan's order, then its TCP ports."""
    listeners = []
    for name in plan["sockets"]:
        listener = socket.socket(socket.AF_UNIX)
        path = f"{NEW}/run/opsassay/{name}.sock"
        listener.bind(path)
        Path(path).chmod(0o666)
        listeners.append(listener)
    kernel.restrict(f"{NEW}/run/opsassay", kernel.READ_ONLY)
    for port in plan["ports"]:
        listener = socket.socket(socket.AF_INET)
        listener.bind(("127.0.0.1", int(port)))
        listeners.append(listener)
    for listener in listeners:
        listener.listen(64)
    return listeners


def _enter_root() -> None:
    """Make the new root read-only and the root of this process; detach the machine's root."""
    kernel.restrict(NEW, kernel.READ_ONLY)
    os.chdir(NEW)
    kernel.pivot_root(".", ".")
    kernel.unmount(".")
    os.chdir("/")


def _owner_of_files(plan: dict[str, Any]) -> int:
    """Return the uid that owns the agent's files: the outer user's when only that one is mapped."""
    return confine.USER_INSIDE if plan["outer_uid"] is None else int(plan["outer_uid"])

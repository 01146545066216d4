"""Hosts: worlds that differ in a control alone, commands that answer as the real ones would, and their controls."""

from __future__ import annotations

import subprocess

import pytest

from opsassay.evals.compliance.hosts.controls import host_controls
from opsassay.evals.compliance.hosts.worlds import BIN, VARIANTS, host_mutants, host_worlds

CONTROLS = host_controls()


def ask(world, tmp_path, *words):
    """Run a command of *world* as a host would have it; return its exit code and what it printed."""
    script = tmp_path / words[0]
    script.write_text(world.files[f"{BIN}/{words[0]}"])
    done = subprocess.run(["sh", script, *words[1:]], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def first(name, *, compliant=True):
    return next(one for one in host_worlds(CONTROLS[name], 4, "judged", VARIANTS) if one.compliant is compliant)


def test_there_are_twenty_controls_of_every_kind():
    assert len(CONTROLS) == 20
    assert {one.kind for one in CONTROLS.values()} == {
        "sshd",
        "sysctl",
        "service",
        "package",
        "mount",
        "setting",
        "module",
    }


@pytest.mark.parametrize("name", CONTROLS)
def test_a_mutant_differs_from_its_host_in_the_control_alone(name):
    control = CONTROLS[name]
    pairs = zip(host_worlds(control, 5, "judged", 6), host_mutants(control, 5, "judged", 6), strict=True)
    for world, mutant in pairs:
        assert world.compliant is not mutant.compliant
        assert world.files.keys() == mutant.files.keys()
        differing = {path for path in world.files if world.files[path] != mutant.files[path]}
        assert differing
        assert len({path.rpartition("/")[2] for path in differing}) <= 5, differing
        assert not {"etc/hostname", "etc/os-release", "etc/passwd"} & differing


@pytest.mark.parametrize("name", CONTROLS)
def test_no_file_of_a_host_says_whether_it_complies(name):
    for world in host_worlds(CONTROLS[name], 6, "judged", 4):
        text = "\n".join((*world.files, *world.files.values())).lower()
        assert "complian" not in text
        assert "violat" not in text


def test_kernel_parameters_are_answered_by_name_and_all(tmp_path):
    world = first("ip-forwarding")
    assert ask(world, tmp_path, "sysctl", "-n", "net.ipv4.ip_forward") == (0, ["0"])
    assert ask(world, tmp_path, "sysctl", "net/ipv4/ip_forward") == (0, ["net.ipv4.ip_forward = 0"])
    assert "net.ipv4.ip_forward = 0" in ask(world, tmp_path, "sysctl", "-a")[1]
    assert ask(world, tmp_path, "sysctl", "no.such")[0] == 1
    assert ask(world, tmp_path, "sysctl", "-w", "net.ipv4.ip_forward=1")[0] == 1
    assert world.files["proc/sys/net/ipv4/ip_forward"] == "0\n"


def test_units_packages_and_mounts_are_answered(tmp_path):
    world, other = first("firewall-service"), first("firewall-service", compliant=False)
    assert ask(world, tmp_path, "systemctl", "is-enabled", "firewalld.service") == (0, ["enabled"])
    assert ask(world, tmp_path, "systemctl", "is-active", "--quiet", "firewalld")[0] == 0
    assert ask(world, tmp_path, "systemctl", "is-active", "nothing") == (3, ["inactive"])
    assert ask(world, tmp_path, "systemctl", "stop", "firewalld")[0] == 1
    states = [ask(other, tmp_path, "systemctl", verb, "firewalld")[1][0] for verb in ("is-enabled", "is-active")]
    assert states != ["enabled", "active"]
    assert ask(first("nftables-package"), tmp_path, "rpm", "-q", "nftables") == (0, ["nftables-1.0.9-3"])
    gone = first("nftables-package", compliant=False)
    assert ask(gone, tmp_path, "rpm", "-q", "nftables") == (1, ["package nftables is not installed"])
    assert any(line.startswith("python3-nftables") for line in ask(gone, tmp_path, "rpm", "-qa")[1])
    options = ask(first("tmp-noexec"), tmp_path, "findmnt", "-n", "-o", "OPTIONS", "/tmp")
    assert "noexec" in options[1][0].split(",")
    assert ask(first("tmp-noexec"), tmp_path, "findmnt", "/nowhere")[0] == 1
    ubuntu = first("nftables-service")
    shown = ask(ubuntu, tmp_path, "dpkg-query", "-W", "-f=${db:Status-Abbrev} ${Version}\\n", "sudo")
    assert shown == (0, ["ii  1.9.5p2-10"])


def test_sshd_counts_what_is_obtained_first_and_reads_drop_ins_before_the_file(tmp_path):
    for world in host_worlds(CONTROLS["ssh-root-login"], 8, "judged", VARIANTS):
        lines = world.files["etc/ssh/sshd_config.d/50-site.conf"] + world.files["etc/ssh/sshd_config"]
        set_ = [line.split()[1] for line in lines.splitlines() if line.lower().startswith("permitrootlogin ")]
        told = dict(line.split() for line in ask(world, tmp_path, "sshd", "-T")[1])["permitrootlogin"]
        assert told == (set_ or ["prohibit-password"])[0]
        assert (told == "no") is world.compliant

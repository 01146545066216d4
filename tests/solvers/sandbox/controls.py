"""Where a control cannot succeed for a reason that is the machine's and not the seal's."""

from __future__ import annotations

NEEDS_A_MEMORY_GROUP = {"a_memory_bomb_in_many_processes", "memory_without_a_name"}
"""Without a control group each process's address space is bounded, but not the memory of all together."""

SHARED_WITHOUT_ROOT = {"a_lock_on_a_device"}
"""Only root may make devices: without it those of the machine are shown, and a lock on one is seen by all."""

DEPENDS_ON_THE_MACHINE = {
    "a_real_time_process": "a control group of the machine grants no real time",
    "home_folders": "this user has no home folder that can be listed",
    "the_root_of_process_one": "process 1 of this machine lets nobody look in",
    "tracing_the_supervisor": "Yama or a container forbids tracing",
    "tracing_anything_at_all": "Yama or a container forbids tracing",
    "a_service_on_the_loopback_of_ipv6": "no IPv6",
    "a_service_on_the_machines_address": "no address but the loopback's",
    "a_way_to_the_internet": "no route to anywhere",
    "a_name_server": "no name server is configured, or no route to it",
    "interfaces": "no interface but the loopback",
    "a_socket_to_the_hypervisor": "the kernel has no vsock",
    "a_socket_to_the_kernels_ciphers": "the kernel has no AF_ALG",
    "a_queue_of_posix": "the kernel has no POSIX queues",
    "a_key_of_the_kernel": "the kernel has no keys, or a container forbids them",
    "a_user_namespace": "user namespaces are for root only",
    "a_user_namespace_by_clone": "user namespaces are for root only",
    "a_user_namespace_by_clone3": "user namespaces are for root only",
    "truth_by_a_file_handle": "the file system has no handles",
    "a_set_user_id_program": "the folder for temporary files is mounted nosuid",
    "the_log_of_the_kernel": "the kernel's log has no device",
    "devices_in_sysfs": "no sysfs is mounted",
    "control_groups": "no control groups are mounted",
    "the_handler_of_crashes": "/proc/sys is read-only",
    "the_trigger_of_sysrq": "the kernel has no SysRq",
    "a_module_for_the_kernel": "the kernel has no modules",
    "another_kernel": "the kernel has no kexec",
    "a_program_in_the_kernel": "the kernel has no BPF",
    "counters_of_the_processor": "the kernel has no perf events",
    "faults_of_pages_in_our_hands": "the kernel has no userfaultfd",
    "rings_of_system_calls": "the kernel has no io_uring",
}

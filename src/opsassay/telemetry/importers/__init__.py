"""Formats that `opsassay incident import` reads, by name; packages add to them by the entry point `opsassay.importers`.

An importer is called with (source path, tree folder, on_case) and returns an ImportReport.
"""

from __future__ import annotations

from opsassay.core.registry import Registry

IMPORTERS = Registry(
    "import format",
    "opsassay.importers",
    {
        "rcabench": "opsassay.telemetry.public:import_public",
        "nezha": "opsassay.telemetry.importers.nezha:import_nezha",
        "petshop": "opsassay.telemetry.importers.petshop:import_petshop",
        "rcaeval": "opsassay.telemetry.importers.rcaeval:import_rcaeval",
        "openrca": "opsassay.telemetry.importers.openrca:import_openrca",
        "otlp": "opsassay.telemetry.importers.otlp:import_otlp",
        "itbench": "opsassay.telemetry.importers.itbench:import_itbench",
        "itbench-lite": "opsassay.telemetry.importers.itbench_lite:import_itbench_lite",
        "cloud-opsbench": "opsassay.telemetry.importers.cloud_opsbench:import_cloud_opsbench",
    },
)

"""Formats that `assay import` reads, by name; packages add to them through the entry point `assay.importers`.

An importer is called with (source path, tree folder, on_case) and returns an ImportReport.
"""

from __future__ import annotations

from assay.registry import Registry

IMPORTERS = Registry(
    "import format",
    "assay.importers",
    {
        "rcabench": "assay.telemetry.public:import_public",
        "nezha": "assay.telemetry.importers.nezha:import_nezha",
        "petshop": "assay.telemetry.importers.petshop:import_petshop",
        "rcaeval": "assay.telemetry.importers.rcaeval:import_rcaeval",
        "openrca": "assay.telemetry.importers.openrca:import_openrca",
        "otlp": "assay.telemetry.importers.otlp:import_otlp",
        "itbench": "assay.telemetry.importers.itbench:import_itbench",
    },
)

package compliance

default compliant := false

compliant if not violates

specs contains item.spec if {
    some item in input.items
    item.kind == "Pod"
}

specs contains item.spec.template.spec if {
    some item in input.items
    item.kind in {"Deployment", "StatefulSet", "DaemonSet", "Job"}
}

specs contains spec if {
    some item in input.items
    spec := item.spec.jobTemplate.spec.template.spec
}

containers contains one if {
    some spec in specs
    some group in ["containers", "initContainers", "ephemeralContainers"]
    some one in spec[group]
}

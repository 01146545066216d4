"""A metric: how many root causes an answer claims."""

from opsassay.model.causal_graph import Annotation
from opsassay.model.diagnosis import Diagnosis
from opsassay.model.incident import Truth
from opsassay.model.run import Metric, MetricStatus, Run


def claims_made(run: Run, diagnosis: Diagnosis, truth: Truth, annotation: Annotation | None) -> Metric:
    """Return the number of claimed root causes; not applicable where nothing was broken."""
    del run, annotation
    if not truth.faults:
        return Metric(status=MetricStatus.NOT_APPLICABLE, reason="nothing was broken")
    return Metric(value=float(len(diagnosis.root_causes)), status=MetricStatus.SCORED)

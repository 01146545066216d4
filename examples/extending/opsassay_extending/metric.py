"""A metric: how many root causes an answer claims."""

from opsassay.core.schema.causal_graph import Annotation
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.incident import Truth
from opsassay.core.schema.run import Metric, MetricStatus, Run


def claims_made(run: Run, diagnosis: Diagnosis, truth: Truth, annotation: Annotation | None) -> Metric:
    """Return the number of claimed root causes; not applicable where nothing was broken."""
    del run, annotation
    if not truth.faults:
        return Metric(status=MetricStatus.NOT_APPLICABLE, reason="nothing was broken")
    return Metric(value=float(len(diagnosis.root_causes)), status=MetricStatus.SCORED)

"""NTAM of live diagnoses: by hand on a chain of three, a pod for its service, and what earns nothing."""

from __future__ import annotations

import pytest

from opsassay.core.schema.trajectory import Propagation
from opsassay.scoring.ntam import TABLE_33
from opsassay.scoring.verifiers import certify
from opsassay.testbed.apps import load_system
from scoring.verifiers.made import diagnosis, entity, recording, scenario, timeline

TRUTH = {
    "root_causes": ["catalog"],
    "propagation": [{"source": "catalog", "target": "web"}, {"source": "web", "target": "proxy"}],
    "aliases": {"catalog": ["deployment/catalog"]},
    "filters": {"catalog": [r"catalog-[a-z0-9]+(-[a-z0-9]+)?"]},
}
PODS = {0: [entity("catalog-0"), entity("web-0", host="host-b")]}


def ntam(said, truth=TRUTH, system="desk", **further):
    made = recording(timeline([1.0] * 12, entities=PODS), started=4, ended=10, diagnoses=said)
    verdict = certify(made, scenario(truth=truth, **further), system=load_system(system) if system else None)
    found = [verdict.metrics.get(name) for name in ("ntam_fl", "ntam_fpc")]
    return [None if one is None else one.value for one in found]


def chain(*names, roots=None):
    return (diagnosis(6, *(roots or names[:1])).model_copy(update={"propagation": names}),)


def test_the_true_chain_earns_all_by_names_by_steps_and_by_aliases():
    assert ntam(chain("catalog", "web", "proxy")) == [1.0, 1.0]
    assert ntam(chain("deployment/catalog", "web", "proxy")) == [1.0, 1.0]
    assert ntam(chain("shop/Deployment/catalog", "shop/Service/web", "proxy")) == [1.0, 1.0]
    steps = (
        Propagation(source="catalog", target="web", condition="c", effect="e"),
        Propagation(source="web", target="proxy"),
    )
    assert ntam((diagnosis(6, "catalog").model_copy(update={"edges": steps}),)) == [1.0, 1.0]


def near(distance):
    """Return the share that an entity at this distance earns."""
    return (1 / (distance + 1)) ** TABLE_33.delta


def test_a_pod_is_near_its_deployment_as_by_hand():
    # FL over roots: S(G, O) / S(G, G) = (ITD(catalog, pod) * mean over the chain of ITD(g, pod)) / (the same for catalog);
    # importances 4, 2, 4/3 from the root. From catalog to its pod it costs 1 (owns, a leaf). From web into catalog it costs
    # zeta times its subtree: itself, the pods that are known, its database. From proxy the cheapest way to catalog is down
    # to orders (itself, account, database, queue: 4), its database (1), and up into catalog.
    importances = (4.0, 2.0, 4 / 3)
    for pod in ("catalog-0", "catalog-5d8f-x7k2p"):
        found, _ = ntam(chain(pod, "web", "proxy"))
        subtree = 1 + len({"catalog-0", pod}) + 1
        from_web, from_proxy = TABLE_33.zeta * subtree, TABLE_33.zeta * (4 + 1 + subtree)
        right, through_pod = [0.0, from_web, from_proxy], [1.0, from_web + 1, from_proxy + 1]
        itd = lambda ways: [g * near(way) for g, way in zip(importances, ways, strict=True)]  # noqa: E731
        mine, best = itd(through_pod), itd(right)
        assert found == pytest.approx((mine[0] * sum(mine)) / (best[0] * sum(best)))
        assert 0 < found < 1


def test_what_is_unknown_or_not_said_earns_nothing():
    assert ntam(()) == [0.0, 0.0]
    assert ntam(chain("the-network")) == [0.0, 0.0]
    assert ntam(None) == [None, None]
    fl, fpc = ntam(chain("web", "proxy"))
    assert 0 < fl < 1
    assert 0 < fpc < 1


def test_where_there_is_no_chain_nothing_is_scored():
    assert ntam(chain("catalog"), system=None) == [None, None]
    assert ntam(chain("catalog"), truth={}) == [None, None]
    assert ntam(chain("catalog"), truth={}, no_fault=True, blast_radius={}) == [None, None]


def test_an_object_that_no_definition_knows_is_next_to_what_it_makes_fail():
    truth = {"root_causes": ["rule"], "propagation": [{"source": "rule", "target": "catalog"}]}
    assert ntam(chain("rule", "catalog"), truth=truth) == [1.0, 1.0]
    fl, _ = ntam(chain("catalog"), truth=truth)
    assert 0 < fl < 1

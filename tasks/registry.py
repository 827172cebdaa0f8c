"""The step table that `python -m tasks`, dvc.yaml and the Prefect flow share."""

import tasks.datasets
from pass_core import discovery
from pass_core.errors import ConfigError
from tasks.datasets.base import GeneratedDataset
from tasks.running.step import Step
from tasks.steps import audit, extract, generate, ingest, report, sample_pool, substitute, train, validate

# `sections` are what DVC watches; a test checks that a step reads no other.
_TABLE = (
    Step(
        name="generate", per_method=False, inputs=(), outputs=("raw",), sections=("seed", "dataset.{dataset}"),
        run=lambda c, io: generate.generate(c.dataset[io.key.dataset], io),
    ),
    Step(
        name="ingest", per_method=False, inputs=("raw",), outputs=("records",), sections=("dataset.{dataset}",),
        run=lambda c, io: ingest.ingest(c.dataset[io.key.dataset], io),
    ),
    Step(
        name="validate", per_method=False, inputs=("records",), outputs=("validation",), sections=("dataset.{dataset}",),
        run=lambda c, io: validate.validate(c.dataset[io.key.dataset], io),
    ),
    Step(
        name="extract", per_method=False, inputs=("records", "validation"), outputs=("features",),
        sections=("compute", "dataset.{dataset}", "extractor"),
        run=lambda c, io: extract.extract(c.dataset[io.key.dataset], c.extractor, c.compute.device, c.compute.threads, io),
    ),
    Step(
        name="sample_pool", per_method=False, inputs=("records", "features"), outputs=("pool",),
        sections=("seed", "dataset.{dataset}", "pool.donors", "pool.target", "pool.stratify", "pool.only", "train.share"),
        run=lambda c, io: sample_pool.sample_pool(c.dataset[io.key.dataset], c.pool, c.train.share, io),
    ),
    Step(
        name="train", per_method=True, inputs=("features", "pool"), outputs=("model", "trained_on", "curves"),
        sections=(
            "seed", "compute", "dataset.{dataset}", "train", "method.{method}", "release", "attacker", "pool.forbid",
        ),
        run=lambda c, io: train.train(train.Fitting(
            io=io, dataset=c.dataset[io.key.dataset], training=c.train, config=c.method[str(io.key.method)],
            forbid=c.pool.forbid, knows=c.attacker.knows, released=c.release.get(io.key.dataset, ()),
            device=c.compute.device, processes=c.compute.processes,
        )),
    ),
    Step(
        name="substitute", per_method=True, inputs=("features", "pool", "model"), outputs=("protected", "linkage"),
        sections=("seed", "compute", "dataset.{dataset}", "release", "pool.forbid"),
        run=lambda c, io: substitute.substitute(
            c.dataset[io.key.dataset], c.release.get(io.key.dataset, ()), c.pool.forbid, c.compute.device, io
        ),
    ),
    Step(
        name="audit", per_method=True, inputs=("features", "pool", "model", "trained_on", "protected", "linkage"),
        outputs=("audit", "metrics", "nag_table", "bundle_table"),
        sections=("seed", "compute", "dataset.{dataset}", "attacker", "audit", "pool.forbid", "pool.only"),
        run=lambda c, io: audit.audit(audit.Auditing(
            io=io, dataset=c.dataset[io.key.dataset], attacker=c.attacker, config=c.audit, pool=c.pool,
            device=c.compute.device,
        )),
    ),
    Step(
        name="report", per_method=True, inputs=("audit", "curves", "model"), outputs=("report",), sections=(),
        run=lambda _, io: report.report(io),
    ),
)  # fmt: skip

STEPS = {step.name: step for step in _TABLE}


def find_step(name: str) -> Step:
    """The step of that name."""
    if name not in STEPS:
        raise ConfigError(f"unknown step {name!r}: expected one of {', '.join(STEPS)}")
    return STEPS[name]


def is_generated(dataset: str) -> bool:
    """Whether the data set is made here rather than downloaded."""
    known = dataset in discovery.available(tasks.datasets)  # a section may have a name of its own, and a reader
    return known and isinstance(discovery.load(tasks.datasets, dataset).DATASET, GeneratedDataset)

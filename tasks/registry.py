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
        name="generate",
        run=lambda c, io: generate.generate(c.dataset[io.key.dataset], io),
        sections=("seed", "dataset.{dataset}"),
        inputs=(),
        outputs=("raw",),
        per_method=False,
    ),
    Step(
        name="ingest",
        run=lambda c, io: ingest.ingest(c.dataset[io.key.dataset], io),
        sections=("dataset.{dataset}",),
        inputs=("raw",),
        outputs=("records",),
        per_method=False,
    ),
    Step(
        name="validate",
        run=lambda c, io: validate.validate(c.dataset[io.key.dataset], io),
        sections=("dataset.{dataset}",),
        inputs=("records",),
        outputs=("validation",),
        per_method=False,
    ),
    Step(
        name="extract",
        run=lambda c, io: extract.extract(c.dataset[io.key.dataset], c.extractor, c.compute.device, c.compute.threads, io),
        sections=("compute", "dataset.{dataset}", "extractor"),
        inputs=("records", "validation"),
        outputs=("features",),
        per_method=False,
    ),
    Step(
        name="sample_pool",
        run=lambda c, io: sample_pool.sample_pool(c.dataset[io.key.dataset], c.pool, c.train.share, io),
        sections=("seed", "dataset.{dataset}", "pool.donors", "pool.target", "pool.stratify", "pool.only", "train.share"),
        inputs=("records", "features"),
        outputs=("pool",),
        per_method=False,
    ),
    Step(
        name="train",
        run=lambda c, io: train.train(
            train.Fitting(
                dataset=c.dataset[io.key.dataset],
                training=c.train,
                config=c.method[str(io.key.method)],
                forbid=c.pool.forbid,
                device=c.compute.device,
                processes=c.compute.processes,
                io=io,
            )
        ),
        sections=("seed", "compute", "dataset.{dataset}", "train", "method.{method}", "pool.forbid"),
        inputs=("features", "pool"),
        outputs=("model", "trained_on", "curves"),
        per_method=True,
    ),
    Step(
        name="substitute",
        run=lambda c, io: substitute.substitute(
            c.dataset[io.key.dataset], c.release.get(io.key.dataset, ()), c.pool.forbid, c.compute.device, io
        ),
        sections=("seed", "compute", "dataset.{dataset}", "release", "pool.forbid"),
        inputs=("features", "pool", "model"),
        outputs=("protected", "linkage"),
        per_method=True,
    ),
    Step(
        name="audit",
        run=lambda c, io: audit.audit(c.dataset[io.key.dataset], c.audit, c.pool.forbid, c.compute.device, io),
        sections=("seed", "compute", "dataset.{dataset}", "audit", "pool.forbid"),
        inputs=("features", "pool", "model", "trained_on", "protected", "linkage"),
        outputs=("audit", "metrics", "nag_table", "bundle_table"),
        per_method=True,
    ),
    Step(
        name="report",
        run=lambda _, io: report.report(io),
        sections=(),
        inputs=("audit", "curves", "model"),
        outputs=("report",),
        per_method=True,
    ),
)

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

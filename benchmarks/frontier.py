"""Privacy against utility of several settings on one data set, over seeds.

`unprotected` prints how accurately attacks of params.yaml, and a network with dropout, guess attributes from unprotected
features of test records; with `--held-out`, of a fifth of the training records' people, by which features are chosen; with
`--folds N`, of all people, one part after the other. `measure` adds rows to a CSV, `show` makes table and plot:

python benchmarks/frontier.py unprotected celeba DIR [--held-out | --folds 5] [--attacks network]
python benchmarks/frontier.py measure audiomnist DIR results.csv --donors 2048 --seeds 7 8 9 --settings paper improved transport
python benchmarks/frontier.py show results.csv [--plot frontier.svg]

DIR holds features that `pass-pipeline run --dataset audiomnist --root DIR` extracted. NAG is the exact attacker's: the best rule
donor → class, learnt on training records, scored on test records; with --probe N also that of the paper's network, N epochs.
I(X';S) on test records is printed beside its null, the private classes permuted over persons, or over recordings where the
class is the person. --persons tests on people never seen in training, a fifth of them per seed, and leaves out attributes that
name a person. weighing_donors is the mean share of donors that a draw of 53 bits can see; weighing_donors_most, the largest.
"""

import argparse
import csv
import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pass_core.attacks.base import AttackTask
from pass_core.attacks.network import NetworkAdversary, NetworkConfig
from pass_core.channel.joint_law import channel_law, mutual_information, rule_accuracy
from pass_core.channel.pool import Forbidden
from pass_core.channel.substitution import Channel, ExcludingChannel, Exclusion
from pass_core.data import Attribute, FloatArray, IntArray, Records, with_role
from pass_core.methods import pass_substitution, transport_substitution
from pass_core.methods.base import ReleaseContext
from pass_core.methods.transport.channel import TransportConfig
from pass_core.randomness import stream
from pass_core.statistics.nag import hits_of, majority_class, mean_nag, nag
from pass_core.statistics.null_distribution import choose_units, compare_with_null, donor_sums
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig
from tasks.config import load_config
from tasks.datasets.base import split_of
from tasks.paper_tables.measure import learn_control, learn_probe
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.parquet import FeatureTable, TableInfo, read_features

FOLDS = 5
NEGLIGIBLE = float(np.exp(-45.0))  # 4,096 donors that weigh less each, weigh less than 2⁻⁵³ together: a draw of 53 bits sees none
SHOWN = ("exact", "information_t", "null_", "probe_mnag", "weighing")
UNPROTECTED = ("majority", "logistic_regression", "network", "large_network")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One split with its pool."""

    attributes: tuple[Attribute, ...]
    train: Records
    test: Records
    test_persons: IntArray
    test_blocks: IntArray
    context: ReleaseContext
    pool_rows: IntArray
    train_persons: IntArray


def unprotected(arguments: argparse.Namespace) -> None:
    """A Markdown table of accuracies in per cent, an attack in each column."""
    torch.set_num_threads(arguments.threads)
    config, folder = load_config(Path("params.yaml")), Layout(arguments.root).artefact("features", RunKey(arguments.dataset))
    info = TableInfo.load(folder)
    attributes = config.dataset[arguments.dataset].attributes(info.classes)
    table = read_features(folder, attributes)
    parts = list(_parts(table, arguments))
    attacks = [attack for attack in config.audit.named_attacks() if attack.name in arguments.attacks]
    print(f"features {info.feature_shape}, extraction {info.extraction[:12]}; learnt from + scored: ", end="")
    print(", ".join(f"{len(learnt)} + {len(scored)}" for learnt, scored in parts), end="\n\n")
    print(f"| | {' | '.join([*(attack.name for attack in attacks), 'dropout'])} |\n|---{'|---' * (len(attacks) + 1)}|")
    guessed = [_dropout_network(learnt, attributes, scored.features) for learnt, scored in parts]
    for a in attributes:
        hits: dict[str, list[float]] = {}
        for (learnt, scored), guesses in zip(parts, guessed, strict=True):
            task = AttackTask(
                released_train=lambda _, x=learnt.features: x, train_labels=learnt.labels[a.name], n_classes=a.n_classes
            )
            for attack in attacks:
                rng = stream(config.seed, "unprotected", attack.name, a.name)
                found = attack.attack.learn(task, attack.config, rng, lambda _: None).probabilities(scored.features)
                hits.setdefault(attack.name, []).extend(hits_of(found, scored.labels[a.name]).tolist())
            hits.setdefault("dropout", []).extend((guesses[a.name] == scored.labels[a.name]).tolist())
        print(f"| {a.name} | {' | '.join(f'{100 * np.mean(values):.1f}' for values in hits.values())} |", flush=True)


def _parts(table: FeatureTable, arguments: argparse.Namespace) -> Iterator[tuple[Records, Records]]:
    """Records to learn from and to score: those of the data set's split, a part of its training people, or folds of people."""
    train, test = table.rows("train"), table.rows("test")
    if arguments.folds:
        fold = np.array([stream(0, "folds", person).integers(arguments.folds) for person in table.persons])
        for k in range(arguments.folds):
            yield table.subset(np.flatnonzero(fold != k)), table.subset(np.flatnonzero(fold == k))
        return
    if arguments.held_out:
        unseen = np.array([split_of(1, table.persons[row]) == "test" for row in train])
        train, test = train[~unseen], train[unseen]
    yield table.subset(train), table.subset(test)


def _dropout_network(learnt: Records, attributes: tuple[Attribute, ...], scored: FloatArray) -> dict[str, IntArray]:
    """The classes that one regularised network for all attributes guesses: a hidden layer of 512, dropout, 20 epochs."""
    features, widths = torch.from_numpy(learnt.features).flatten(1), [a.n_classes for a in attributes]
    labels = [torch.from_numpy(learnt.labels[a.name]) for a in attributes]
    torch.manual_seed(0)
    layers = nn.Linear(features.shape[1], 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, sum(widths))
    network = nn.Sequential(nn.Dropout(0.2), *layers)
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.001, weight_decay=0.0001)
    for _ in range(20):
        for rows in torch.randperm(len(features)).split(256):
            optimiser.zero_grad()
            scores = network(features[rows]).split(widths, dim=1)
            torch.stack([nn.functional.cross_entropy(s, y[rows]) for s, y in zip(scores, labels, strict=True)]).sum().backward()
            optimiser.step()
    with torch.inference_mode():
        scores = network.eval()(torch.from_numpy(scored).flatten(1)).split(widths, dim=1)
    return {a.name: s.argmax(dim=1).numpy() for a, s in zip(attributes, scores, strict=True)}


def settings(name: str, arguments: argparse.Namespace) -> Iterator[tuple[str, Any, Any, TrainConfig]]:
    """(label, method, its config, training) of each point that a name denotes."""
    epochs = arguments.epochs
    if name == "paper":
        training = TrainConfig(epochs, arguments.batch, arguments.rate, validation_share=0, amp=arguments.amp)
        for general in arguments.general_weights:
            config = pass_substitution.PassConfig(preset="paper", general_weight=general, encoder=arguments.encoder)
            yield f"paper, μ = {general:g}{', bfloat16' if arguments.amp else ''}", pass_substitution.METHOD, config, training
    elif name == "improved":
        training = TrainConfig(arguments.improved_epochs, 256, 0.002, validation_share=0)
        for epsilon in arguments.improved_epsilons:
            config = pass_substitution.PassConfig(preset="improved", teacher_epsilon=epsilon, encoder=arguments.encoder)
            yield f"improved, ε = {epsilon:g}", pass_substitution.METHOD, config, training
    else:
        training = TrainConfig(arguments.classifier_epochs, 256, 0.001, validation_share=0)
        for epsilon in arguments.epsilons:
            yield (f"transport, ε = {epsilon:g}", transport_substitution.METHOD, TransportConfig(epsilon=epsilon), training)


def make_case(
    table: FeatureTable, attributes: tuple[Attribute, ...], seed: int, *, donors: int, by_person: bool, forbid: Forbidden
) -> Case:
    """The published split, or a fifth of the people of every private class for testing."""
    _, persons = np.unique(table.persons, return_inverse=True)
    train, test = (table.rows("train"), table.rows("test"))
    if by_person:
        attributes = tuple(a for a in attributes if not _names_persons(table.records.labels[a.name], persons))
        private = table.records.labels[with_role(attributes, "private")[0].name]
        held_out: list[int] = []
        for label in np.unique(private):
            own = stream(0, "folds", str(label)).permutation(np.unique(persons[private == label]))
            held_out += own[seed % FOLDS :: FOLDS].tolist()
        unseen = np.isin(persons, held_out)
        train, test = np.flatnonzero(~unseen).astype(np.int64), np.flatnonzero(unseen).astype(np.int64)
    records = [table.subset(rows) for rows in (train, test)]
    pool_rows = np.sort(stream(seed, "pool").choice(len(train), size=donors, replace=False)).astype(np.int64)
    names = {"none": None, "self": np.arange(len(train)), "same_person": persons[train]}[forbid]
    exclusion = None if names is None else Exclusion(names.astype(np.int64), names[pool_rows].astype(np.int64))
    context = ReleaseContext(attributes, records[0].subset(pool_rows), torch.device("cpu"), exclusion)
    return Case(
        attributes=attributes,
        train=records[0],
        test=records[1],
        test_persons=persons[test].astype(np.int64),
        test_blocks=table.blocks[test],
        context=context,
        pool_rows=pool_rows,
        train_persons=persons[train],
    )


def _names_persons(labels: IntArray, persons: IntArray) -> bool:
    """Whether every class is a single person."""
    return len(np.unique(np.stack([labels, persons]), axis=1).T) == len(np.unique(labels))


def control(case: Case, attribute: Attribute, epochs: int) -> tuple[float, float, NetworkAdversary]:
    """(majority, unprotected) accuracy on test records, and the classifier."""
    labels, test_labels = case.train.labels[attribute.name], case.test.labels[attribute.name]
    learnt = learn_control(case.train, attribute, NetworkConfig(epochs, 256, 0.001), stream(1, "control"), lambda _: None)
    unprotected = float(hits_of(learnt.probabilities(case.test.features), test_labels).mean())
    return float((test_labels == majority_class(labels)).mean()), unprotected, learnt


def measure_point(
    case: Case, channel: Channel, controls: dict[str, tuple[float, float, NetworkAdversary]], probe: int, seed: int
) -> dict[str, Any]:
    """Every figure of one fitted channel."""
    draws = 4 if probe else 0
    released = channel if case.context.exclusion is None else ExcludingChannel(channel, case.context.exclusion)
    train = channel_law(
        released, case.train.features, case.train.labels, case.attributes, rng=stream(seed, "train"), n_draws=draws
    )
    test = channel_law(
        channel, case.test.features, case.test.labels, case.attributes, rng=stream(seed, "test"), n_draws=int(probe > 0)
    )
    pool = case.context.pool.features
    row: dict[str, Any] = {}
    exact: dict[str, float] = {}
    probed: dict[str, float] = {}
    for attribute in case.attributes:
        name = attribute.name
        majority, unprotected, learnt = controls[name]
        exact[name] = nag(rule_accuracy(train.joint[name], test.joint[name]), majority, unprotected)
        if probe:
            labels, config = case.train.labels[name], NetworkConfig(probe, 256, 0.001)
            attacker = learn_probe(
                lambda k: pool[train.draws[k % draws]],
                labels,
                attribute.n_classes,
                control=learnt,
                config=config,
                rng=stream(seed, "probe", name),
                on_epoch=lambda _: None,
            )
            hits = hits_of(attacker.probabilities(pool[test.draws[0]]), case.test.labels[name])
            probed[name] = nag(float(hits.mean()), majority, unprotected)
    kept = [case.test.labels[a.name] for a in with_role(case.attributes, "useful")]
    for attribute in with_role(case.attributes, "private"):
        labels = case.test.labels[attribute.name]
        units = choose_units(labels, kept, case.test_persons, case.test_blocks)
        sums = donor_sums(channel, case.test.features, [units.indices, labels])
        null, _ = compare_with_null(sums, labels, units, stream(seed, "null"))
        row |= {
            f"information_train_{attribute.name}": mutual_information(train.joint[attribute.name]),
            f"information_test_{attribute.name}": null.found,
            f"null_{attribute.name}": null.null_mean,
            f"null_deviation_{attribute.name}": null.null_deviation,
            f"p_{attribute.name}": null.p_value,
        }
    for label, found in (("exact", exact), ("probe", probed)):
        if found:
            roles = {a.name: a.role for a in case.attributes}
            row |= {f"{label}_{name}": value for name, value in found.items()}
            private = [value for name, value in found.items() if roles[name] == "private"]
            row[f"{label}_mnag"] = mean_nag(private, [value for name, value in found.items() if roles[name] != "private"])
    own, same = _meetings(case, released)
    weighing = _weighing(channel, case.test.features)
    row |= {"weighing_donors": float(weighing.mean()), "weighing_donors_most": float(weighing.max())}
    return row | {"met_itself": own, "met_own_person": same, "information_record": test.record_information}


def _weighing(channel: Channel, features: FloatArray) -> FloatArray:
    """(n,) the share of donors that weigh at least NEGLIGIBLE of the record's likeliest."""
    found = [(block >= NEGLIGIBLE * block.max(axis=1, keepdims=True)).mean(axis=1) for _, block in channel.blocks(features)]
    return np.concatenate(found).astype(np.float32)


def _meetings(case: Case, channel: Channel) -> tuple[float, float]:
    """Probability that a training record meets itself, and its own person."""
    own = same = 0.0
    for rows, block in channel.blocks(case.train.features):
        index = np.arange(rows.start, rows.stop)
        own += float(block[index[:, None] == case.pool_rows].sum())
        same += float(block[case.train_persons[rows, None] == case.train_persons[case.pool_rows]].sum())
    return own / len(case.train), same / len(case.train)


def measure(arguments: argparse.Namespace) -> None:
    """Adds one row per setting and seed."""
    torch.set_num_threads(arguments.threads)
    config = load_config(Path("params.yaml")).dataset[arguments.dataset]
    folder = Layout(arguments.root).artefact("features", RunKey(arguments.dataset))
    attributes = config.attributes(TableInfo.load(folder).classes)
    table = read_features(folder, attributes)
    controls: dict[str, tuple[float, float, NetworkAdversary]] = {}
    for seed in arguments.seeds:
        case = make_case(table, attributes, seed, donors=arguments.donors, by_person=arguments.persons, forbid=arguments.forbid)
        if not controls or arguments.persons:
            controls = {a.name: control(case, a, arguments.control_epochs) for a in case.attributes}
        # Some attributes of unseen people cannot be inferred even without protection: there is nothing to keep.
        readable = tuple(a for a in case.attributes if controls[a.name][1] > controls[a.name][0])
        case = dataclasses.replace(case, attributes=readable)
        for name in arguments.settings:
            for label, method, method_config, training in settings(name, arguments):
                started, cpu_started = time.perf_counter(), time.process_time()
                rng, run = stream(seed, "fit", label), TrainingContext()
                fitted = method.fit(case.train, context=case.context, config=method_config, training=training, rng=rng, run=run)
                minutes, cpu_minutes = (time.perf_counter() - started) / 60, (time.process_time() - cpu_started) / 60
                row = measure_point(case, fitted.channel, controls, arguments.probe, seed)
                split = "persons" if arguments.persons else "published"
                head = {"dataset": arguments.dataset, "split": split, "setting": label, "seed": seed, "donors": arguments.donors}
                head["forbid"] = arguments.forbid
                head |= {"epochs": training.epochs, "batch": training.batch_size, "minutes": minutes}
                head["cpu_minutes"] = cpu_minutes
                _append(arguments.results, head | row)
                figures = {
                    k: v for k, v in row.items() if k.startswith(("exact", "information_t", "null_", "probe_mnag", "weighing"))
                }
                print(
                    f"{split} {label} seed {seed}: {minutes:.1f} min ({cpu_minutes:.1f} of CPU), "
                    + ", ".join(f"{k} {v:.3f}" for k, v in figures.items())
                )


def _append(path: Path, row: dict[str, Any]) -> None:
    rows = _read(path) if path.exists() else []
    rows.append({k: f"{v:.5g}" if isinstance(v, float) else str(v) for k, v in row.items()})
    names = list(dict.fromkeys(name for each in rows for name in each))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def show(arguments: argparse.Namespace) -> None:
    """A Markdown table of means ± standard deviations over seeds; a plot of mNAG against I(X';S) on training records."""
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
    for row in _read(arguments.results):
        rule = f", forbid {row['forbid']}" if row.get("forbid", "none") not in ("", "none") else ""
        groups.setdefault((row["dataset"], row["split"], row["setting"] + rule), []).append(row)
    skipped = {"dataset", "split", "setting", "seed", "forbid"}
    for (dataset, split, setting), rows in groups.items():
        print(f"\n**{dataset}, {split}, {setting}** ({len(rows)} seeds)")
        for name in [name for name in rows[0] if name not in skipped]:
            values = np.array([float(row[name]) for row in rows if row.get(name)])
            if len(values):
                spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
                print(f"- {name}: {values.mean():.4f}{spread}")
    if arguments.plot:
        _plot(groups, arguments.plot, arguments.private)


def _plot(groups: dict[tuple[str, str, str], list[dict[str, str]]], path: Path, private: str) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "frontier", "svg.fonttype": "none"}
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    colours = {"paper": "#3b7dd8", "improved": "#3a9e6e", "transport": "#d9822b"}
    seen: set[str] = set()
    for k, ((_, _, setting), rows) in enumerate(groups.items()):
        kind, _, rest = setting.partition(", ")
        x = [float(row[f"information_train_{private}"]) for row in rows]
        y = [100 * float(row["exact_mnag"]) for row in rows]
        axes.scatter(x, y, color=colours[kind], s=14, alpha=0.5)
        axes.scatter(np.mean(x), np.mean(y), color=colours[kind], s=50, label=None if kind in seen else kind)
        axes.annotate(
            rest, (float(np.mean(x)), float(np.mean(y))), xytext=(6, (6, -12)[k % 2]), textcoords="offset points", fontsize=8
        )
        seen.add(kind)
    axes.set_xscale("symlog", linthresh=1e-4)
    axes.set_xlabel(f"exact I(X';{private}) on training records, nats")
    axes.set_ylabel("mNAG of the exact attacker, %")
    axes.set_ylim(0, 100)
    axes.set_xlim(left=0)
    axes.margins(x=0.15)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    guessing = commands.add_parser("unprotected")
    guessing.add_argument("dataset")
    guessing.add_argument("root", type=Path)
    guessing.add_argument("--held-out", action="store_true")
    guessing.add_argument("--folds", type=int, default=0)
    guessing.add_argument("--attacks", nargs="*", default=UNPROTECTED)
    guessing.add_argument("--threads", type=int, default=2)
    guessing.set_defaults(run=unprotected)
    measuring = commands.add_parser("measure")
    measuring.add_argument("dataset")
    measuring.add_argument("root", type=Path)
    measuring.add_argument("results", type=Path)
    measuring.add_argument("--settings", nargs="+", choices=["paper", "improved", "transport"], default=["paper", "transport"])
    measuring.add_argument("--seeds", nargs="+", type=int, default=[7, 8, 9])
    measuring.add_argument("--donors", type=int, default=2048)
    measuring.add_argument("--persons", action="store_true")
    measuring.add_argument("--forbid", choices=["none", "self", "same_person"], default="none")
    measuring.add_argument("--probe", type=int, default=0)
    measuring.add_argument("--threads", type=int, default=2)
    measuring.add_argument("--encoder", default="auto")
    measuring.add_argument("--epochs", type=int, default=200)
    measuring.add_argument("--batch", type=int, default=1024)
    measuring.add_argument("--rate", type=float, default=0.001)
    measuring.add_argument("--general-weights", nargs="+", type=float, default=[0.2])
    measuring.add_argument("--amp", action="store_true", help="train the setting `paper` with train.amp")
    measuring.add_argument("--improved-epochs", type=int, default=60)
    measuring.add_argument("--improved-epsilons", nargs="+", type=float, default=[0.015])
    measuring.add_argument("--classifier-epochs", type=int, default=20)
    measuring.add_argument("--control-epochs", type=int, default=20)
    measuring.add_argument("--epsilons", nargs="+", type=float, default=[0.015])
    measuring.set_defaults(run=measure)
    showing = commands.add_parser("show")
    showing.add_argument("results", type=Path)
    showing.add_argument("--plot", type=Path)
    showing.add_argument("--private", default="gender")
    showing.set_defaults(run=show)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

"""`Protector`: an obfuscation method with scikit-learn's conventions."""

import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import polars as pl
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pass_core.api.containers import (
    Labelled,
    Names,
    Values,
    as_features,
    class_numbers,
    columns_of,
    like,
    read_ids,
    read_labels,
    read_names,
    read_values,
)
from pass_core.channel.draws import experiment_key, keyed_words
from pass_core.channel.pool import Column, Forbidden, PoolConfig, sample_pool
from pass_core.channel.substitution import (
    Channel,
    Exclusion,
    carried_attributes,
    channel_of_records,
    draw_donors,
    exclusion_among,
)
from pass_core.data import Attribute, IntArray, Records, Role, shown_classes
from pass_core.devices import Device, resolve_device
from pass_core.errors import ChecksumMismatch, ConfigError, DataError, MethodError
from pass_core.methods.base import Fitted, FittedChannel, ReleaseContext, find_method, fit_method, known_attributes
from pass_core.methods.transport.notes import not_hidden
from pass_core.randomness import stream
from pass_core.storage import models
from pass_core.storage.files import AnyPath, as_path, digest, read_json, write_json
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.held_out import learnt_from
from pass_core.training.loop import TrainConfig

SHORT_NAMES = {"transport": "transport_substitution", "pass": "pass_substitution"}
FORMAT = 1
Key = bytes | Literal["experiment"] | None


@dataclass(kw_only=True, eq=False, repr=False)  # scikit-learn compares by identity and prints what differs from the defaults
class Protector(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Replaces every record by a real donor's record, so that private attributes cannot be inferred.

    After `fit`: `classes_` (attribute -> classes), `donors_` (the donors' records), `fitted_` (what the method has learnt),
    `notes_` (what it leaves visible, in sentences that are also warnings).
    """

    method: str = "transport"  # or "pass", or the full name of any module of `pass_core.methods`
    private: Sequence[str] = ("private",)  # attributes to hide
    useful: Sequence[str] = ()  # attributes to keep
    general: Sequence[str] = ()  # attributes that training ignores and an audit shows
    donors: int | None = None  # training records that become donors; None: 1024, or half of them where they are few
    knows: Sequence[str] | None = None  # attributes that recipients know of every record; None: the useful ones
    forbid: Forbidden = "none"  # donors excluded for a record: "self" (itself) or "same_person"
    pool: Mapping[str, Any] | None = None  # how donors are chosen: `target`, `stratify`, `only` of `PoolConfig`
    settings: Mapping[str, Any] | None = None  # of the method
    training: Mapping[str, Any] | None = None  # of `TrainConfig`
    seed: int = 0  # of the choice of donors and of the training
    device: Device = "auto"
    key: Literal["experiment"] | None = None  # "experiment": drawn with a key that follows from the seed, never for release
    verbose: bool = False  # print one line per epoch
    on_epoch: OnEpoch | None = None  # called after every epoch

    def fit(self, X: Any, labels: Any = None, persons: Any = None, ids: Any = None) -> Self:
        """Chooses the donors and trains the method.

        Args:
            X: (n, features…) numbers: numpy, torch, polars or pandas.
            labels: attribute -> (n,) classes, as a mapping or a table; a single array where there is one attribute.
            persons: (n,) whose record it is; None: every record is another person's.
            ids: (n,) names of the records; None: derived from their numbers.
        """
        method, config = find_method(self.method_name()), self._config()
        training = models.config_of(TrainConfig, self.training, "training")
        chosen = models.config_of(PoolConfig, {**(self.pool or {}), "donors": self.donors, "forbid": self.forbid}, "pool")
        values, roles = read_values(X), self._roles()
        kept = [name for name in (*chosen.target, *chosen.stratify, *chosen.only) if name not in roles]
        texts = read_labels(labels, (*roles, *dict.fromkeys(kept)), len(values))
        self.classes_ = {name: tuple(np.unique(text).tolist()) for name, text in texts.items()}
        self.n_features_in_, self.feature_names_in_ = int(np.prod(values.shape[1:])), columns_of(X)
        data = self._labelled(values, texts, persons, ids)
        rng_for = functools.partial(stream, self.seed, "protector")
        known = learnt_from(np.arange(len(values)), data.blocks, training.share, rng_for("share"))
        labels_of, people = data.records.labels, data.persons[known].tolist()
        columns = {
            name: Column(classes, labels_of[name][known], shown_classes(classes, labels_of[name][known], people))
            for name, classes in self.classes_.items()
        }
        rows = known[sample_pool(columns, tuple(self.useful), len(known), chosen, rng_for("donors"))]
        self.donors_, self.donor_ids_, self.donor_persons_ = values[rows], data.ids[rows], data.persons[rows]
        self.setting_ = ReleaseContext(self.attributes(), data.records.subset(rows), resolve_device(self.device))
        setting = dataclasses.replace(
            self.setting_,
            exclusion=self._exclusion(data.ids[known], data.persons[known]),
            known=known_attributes(self.attributes(), self.knows),
        )
        records, blocks, run = data.records.subset(known), data.blocks[known], TrainingContext(self._report)
        fitted, learnt = fit_method(
            method, records, blocks, context=setting, config=config, training=training, rng_for=rng_for, run=run
        )
        self._learnt(fitted)
        self.notes_ = not_hidden(records.labels, setting.attributes, setting.known, people)
        self.notes_ += fitted.notes if isinstance(fitted, FittedChannel) else ()
        for note in self.notes_:
            warnings.warn(note, stacklevel=2)
        named = Records(data.records.features, {name: labels_of[name] for name in roles})
        self.training_ = dataclasses.replace(data, records=named, learnt_from=known[learnt])  # for `audit`; never saved
        return self

    def transform(
        self, X: Any, ids: Any = None, persons: Any = None, key: Key = None, *, labels: Any = None, return_donors: bool = False
    ) -> Any:
        """A donor's record for every record, in the container that X is.

        The donor is a function of the key, the record's id and the model: every call draws the same donor for an id. Drawing
        records again with another key lets an attacker average over the draws.

        Args:
            ids: (n,) stable names of the records; None: derived from their numbers, so that equal records get the same donor.
            persons: (n,) whose record it is; needed for forbid="same_person".
            key: 32 secret bytes; keep them to draw the same donors again. None: as `Protector(key=...)` says, else an error.
            labels: attribute -> (n,) classes of the attributes under `carried` in transport's settings; others are not read.
            return_donors: also return the donors' positions in `donors_`.
        """
        check_is_fitted(self, "fitted_")
        carried = tuple(a.name for a in carried_attributes(self.fitted_.channel))
        data = self.records(X, labels if carried else None, persons=persons, ids=ids, of=carried)
        secret = self.draw_key(key)
        if self.fitted_.channel is not None or return_donors:
            drawn = self.draw(data, secret)
            released = like(X, self.donors_[drawn])
            return (released, drawn) if return_donors else released
        # A method that makes new records has one random stream for all of them.
        rng = np.random.default_rng(keyed_words(secret, "transform", self.scope_, data.ids.tolist()))
        return like(X, self.fitted_.transform(data.records.features, rng))

    def fit_transform(self, X: Any, labels: Any = None, persons: Any = None, ids: Any = None, key: Any = None) -> Any:
        """Fits on these records, then replaces them."""
        return self.fit(X, labels, persons, ids).transform(X, ids, persons, key, labels=labels)

    def save(self, folder: AnyPath) -> None:
        """Writes model, donors and parameters (safetensors and JSON). The folder is as confidential as the donors' records."""
        check_is_fitted(self, "fitted_")
        place, training = as_path(folder), models.config_of(TrainConfig, self.training, "training")
        pool = {f"labels.{name}": torch.from_numpy(values) for name, values in self.setting_.pool.labels.items()}
        pool["donors"] = torch.from_numpy(self.donors_)
        of_pool, config, name = models.tensor_digest(pool), self._config(), self.method_name()
        models.save_model(place, name, self.fitted_, self.setting_, config=config, training=training, pool_digest=of_pool)
        models.save_tensors(place / "pool.safetensors", pool)
        parameters = {name: value for name, value in self.get_params().items() if name != "on_epoch"}
        learnt = {"classes": self.classes_, "columns": self.feature_names_in_}
        donors = {"donor_ids": self.donor_ids_.tolist(), "donor_persons": self.donor_persons_.tolist()}
        write_json(place / "protector.json", {"format": FORMAT, "parameters": parameters, **learnt, **donors})

    @classmethod
    def load(cls, folder: AnyPath, *, pool: AnyPath | None = None, forbid: Forbidden = "none") -> Self:
        """The protector that `save` wrote, or a model of `pass-pipeline run`; it draws the same donors for the same key and ids.

        A missing or damaged file is a DataError. The other arguments are for a model of the pipeline, which takes extracted
        features, and whose folder holds neither:

        Args:
            pool: the folder of its donors; None: `pools/<data set>` beside `models/<data set>/<method>`.
            forbid: `pool.forbid` of params.yaml.
        """
        place = as_path(folder).absolute()
        if (place / "protector.json").exists() or not (place / "model.json").exists():
            return cls._saved(place)
        described, donors = models.describe_model(place), as_path(pool or place.parents[2] / "pools" / place.parent.name)
        if described["pool_digest"] != digest(donors):
            raise ChecksumMismatch(f"{donors}: expected the donors that {place} was trained for, found others; run train again")
        names: dict[str, Any] = {"private": [], "useful": [], "general": []}
        for attribute in described["attributes"]:
            names[attribute["role"]].append(attribute["name"])
        settings = {"settings": described["config"], "training": described["training"], "donors": described["pool_size"]}
        protector = cls(method=described["method"], forbid=forbid, **settings, **names)
        info, table = read_json(donors / "table.json"), pl.read_parquet(sorted(donors.glob("*.parquet")))
        protector.classes_ = {name: tuple(info["classes"][name]) for name in protector._roles()}
        protector.donors_ = table["features"].to_numpy().reshape(len(table), *described["feature_shape"])
        protector.donor_ids_, protector.donor_persons_ = (table[name].to_numpy().astype(str) for name in ("record_id", "person"))
        labels = {name: table[name].cast(pl.String).to_numpy().astype(str) for name in protector.classes_}
        data = protector._labelled(protector.donors_, labels, protector.donor_persons_, protector.donor_ids_)
        protector._restore(place, data.records, None)
        protector.release_ = (info["dataset"], digest(place))
        return protector

    @classmethod
    def _saved(cls, place: Any) -> Self:
        described, pool = read_json(place / "protector.json"), models.load_tensors(place / "pool.safetensors")
        if described.get("format") != FORMAT:
            found = f"expected format {FORMAT}, found {described.get('format')}"
            raise DataError(f"{place / 'protector.json'}: {found}; save it again")
        if models.describe_model(place)["pool_digest"] != models.tensor_digest(pool):
            raise ChecksumMismatch(f"{place}: expected the donors that the model was trained for, found others; save it again")
        protector = cls(**described["parameters"])
        protector.classes_ = {name: tuple(classes) for name, classes in described["classes"].items()}
        protector.donors_ = pool.pop("donors").numpy()
        protector.donor_ids_, protector.donor_persons_ = np.array(described["donor_ids"]), np.array(described["donor_persons"])
        labels = {name.removeprefix("labels."): value.numpy() for name, value in pool.items()}
        columns = described["columns"]
        protector._restore(place, Records(as_features(protector.donors_), labels), None if columns is None else tuple(columns))
        return protector

    def _restore(self, place: Any, donors: Records, columns: tuple[str, ...] | None) -> None:
        """Takes what was learnt from a model's folder."""
        self.n_features_in_, self.feature_names_in_ = int(np.prod(self.donors_.shape[1:])), columns
        self.setting_ = ReleaseContext(self.attributes(), donors, resolve_device(self.device))
        self._learnt(models.restore_model(place, self.setting_))

    def _learnt(self, fitted: Fitted) -> None:
        self.fitted_, self.digest_ = fitted, models.tensor_digest(fitted.state_dict())
        self.release_ = ("protector", self.digest_)

    @property
    def scope_(self) -> tuple[str, ...]:
        """What a draw depends on beside the key and the record's id."""
        return (*self.release_, *(() if self.forbid == "none" else (self.forbid,)))

    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes with their roles and classes."""
        return tuple(Attribute(name, self.classes_[name], role) for name, role in self._roles().items())

    def records(
        self, X: Any, labels: Any = None, *, persons: Any = None, ids: Any = None, of: Sequence[str] | None = None
    ) -> Labelled:
        """Records as the fitted method reads them; labels (`of` these attributes, else all) as numbers of `fit`'s classes."""
        values = read_values(X)
        if values.shape[1:] != self.donors_.shape[1:] or columns_of(X) not in (None, self.feature_names_in_ or columns_of(X)):
            found = f"expected records of shape {self.donors_.shape[1:]} with the columns of fit, found {values.shape[1:]}"
            raise DataError(f"X: {found}; select the same columns in the same order")
        if persons is None and self.forbid == "same_person":
            raise ConfigError('persons: expected one for every record, since forbid="same_person" needs them, found none')
        texts = {} if labels is None else read_labels(labels, tuple(of or self._roles()), len(values))
        return self._labelled(values, texts, persons, ids)

    def channel_for(self, data: Labelled) -> Channel:
        """P(x'|x) for these records, without the donors that `forbid` excludes."""
        channel, exclusion = self.fitted_.channel, self._exclusion(data.ids, data.persons)
        if channel is None:
            raise MethodError(f"method: expected one that draws donors, found {self.method!r}, which makes new records")
        return channel_of_records(channel, data.records.labels, exclusion)

    def draw(self, data: Labelled, key: bytes) -> IntArray:
        """Positions of the donors of these records in `donors_`."""
        return draw_donors(self.channel_for(data), data.records.features, data.ids.tolist(), key=key, scope=self.scope_)

    def draw_key(self, key: Key) -> bytes:
        """The key to draw with: the one given, or the experiment's."""
        chosen = self.key if key is None else key
        if isinstance(chosen, bytes):
            return chosen
        if chosen == "experiment":
            return experiment_key(self.seed)
        raise ConfigError(
            "key: expected 32 secret bytes, found none. The same key and id give the same donor, so anyone with the key can draw "
            'the donors again. Pass key=secrets.token_bytes(32) and keep it secret, or key="experiment" if nothing is released'
        )

    def _exclusion(self, ids: Names, persons: Names) -> Exclusion | None:
        if self.forbid == "none":
            return None
        names, donors = (ids, self.donor_ids_) if self.forbid == "self" else (persons, self.donor_persons_)
        return exclusion_among(names.tolist(), donors.tolist())

    def _labelled(self, values: Values, texts: Mapping[str, Names], persons: Any, ids: Any) -> Labelled:
        features, labels = as_features(values), class_numbers(texts, self.classes_)
        names = read_ids(ids, features)
        people = names if persons is None else read_names(persons, len(values), "persons")
        return Labelled(records=Records(features, labels), ids=names, persons=people)

    def _roles(self) -> dict[str, Role]:
        named: dict[Role, Sequence[str]] = {"private": self.private, "useful": self.useful, "general": self.general}
        for role, names in named.items():
            if isinstance(names, str):
                raise ConfigError(f"{role}: expected a list of attributes, found the text {names!r}; write [{names!r}]")
        roles = {name: role for role, names in named.items() for name in names}
        if len(roles) != sum(map(len, named.values())):
            raise ConfigError("private, useful, general: expected every attribute once, found one several times")
        return roles

    def method_name(self) -> str:
        """The method's full name."""
        return SHORT_NAMES.get(self.method, self.method)

    def _config(self) -> Any:
        return models.config_of(find_method(self.method_name()).config_type, self.settings, "settings")

    def _report(self, epoch: Epoch) -> None:
        if self.verbose:
            figures = ", ".join(f"{name} {value:.3f}" for name, value in epoch.terms.items() if "total" in name)
            print(f"epoch {epoch.number} of {epoch.total}: {figures}")  # noqa: T201 (asked for by verbose)
        if self.on_epoch is not None:
            self.on_epoch(epoch)

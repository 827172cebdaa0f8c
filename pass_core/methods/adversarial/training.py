"""One game for all adversarial methods: a generator against classifiers, all learning at once; a method defines the losses.

Classifiers are first trained on originals, and the generator to reconstruct records. Then each batch is a step of all of them,
each by the gradient of its own loss: classifiers minimise their cross-entropy on released records, the generator minimises its
method's loss against the current classifiers. One optimiser serves all, since AdamW treats each weight separately.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from pass_core.data import Attribute, Records, Rng, Role, with_role
from pass_core.errors import MethodError
from pass_core.methods.adversarial.generators import Classifier, Generator, common_generator
from pass_core.methods.adversarial.players import FittedGenerator, Game, GameConfig, GeneratorLoss, Members, Move, Players, total
from pass_core.methods.base import ReleaseContext
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext
from pass_core.training.loop import BatchLoss, OptimiserConfig, TrainConfig, minimise
from pass_core.training.networks import CLASSIFIER, Widths, below, drawn_from, network_for

ConfigT = TypeVar("ConfigT", bound=GameConfig)
Shape = tuple[int, ...]


class AdversarialMethod(Generic[ConfigT]):
    """A method that trains a generator against classifiers; a subclass defines the losses."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]
    needs: ClassVar[tuple[Role, ...]] = ("private", "useful")  # whose labels it uses
    useful_stay: ClassVar[bool] = False  # True: classifiers of useful attributes stay as trained on originals

    def objective(self, data: Records, context: ReleaseContext, config: ConfigT) -> GeneratorLoss:
        """What the generator minimises; overridden by methods whose loss depends on the training records."""
        return lambda move: self.loss(move, config)

    def loss(self, move: Move, config: ConfigT) -> dict[str, Tensor]:
        """The weighted terms of the generator's loss."""
        raise NotImplementedError

    def opponents_loss(self, move: Move, config: ConfigT) -> dict[str, Tensor]:
        """What the generator's opponents minimise besides the classifiers' cross-entropies."""
        return {}

    def pretraining_loss(self, players: Players, records: Tensor, config: ConfigT) -> dict[str, Tensor]:
        """An additional loss on originals before the game."""
        return {}

    def generator(self, shape: Shape, config: ConfigT) -> Generator:
        """Without weights yet."""
        return common_generator(shape)

    def ally(self, shape: Shape, config: ConfigT) -> nn.Module:
        """A network that learns with the generator."""
        return nn.Identity()

    def opponent(self, shape: Shape, private: tuple[Attribute, ...], config: ConfigT) -> nn.Module:
        """A network that learns against it."""
        return nn.Identity()

    def widths(self, config: ConfigT) -> tuple[Widths, ...]:
        """Of the classifiers of every private attribute."""
        return (CLASSIFIER,)

    def fit(
        self, data: Records, *, context: ReleaseContext, config: ConfigT, training: TrainConfig, rng: Rng, run: TrainingContext
    ) -> FittedGenerator:
        """Plays the game; each epoch reports the terms of the generator's loss and the classifiers' cross-entropies.

        Raises MethodError when a role has no attribute, the records' shape is not supported, or several processes train.
        """
        if run.world.processes > 1:
            found = f"expected one process to train an adversarial method, found {run.world.processes}"
            raise MethodError(f"{found}; set compute.processes to 1")
        names = [a.name for role in self.needs for a in context.needed(role)]
        generator = torch_generator(rng)
        data = data.subset(run.trained_rows(len(data)))  # to the audit, held-out records are of unseen people
        features = torch.from_numpy(data.features).to(context.device)
        labels = {name: torch.from_numpy(data.labels[name]).to(context.device) for name in names}
        players = self._players(data.feature_shape, context.attributes, config, generator)
        game = Game(players=players, features=features, labels=labels, random=generator)
        objective = self.objective(data, context, config)  # before anything learns: it may reject the records
        players.learn_space(torch.from_numpy(data.features))
        players.to(context.device).train()
        if run.checkpoints.load() is None:  # otherwise the checkpoint already contains the pretrained weights
            self._pretrain(game, config, training)
        if self.useful_stay:
            players.useful.eval().requires_grad_(requires_grad=False)
        play, learnt = self._play(game, objective, config), players.state_dict(keep_vars=True)
        minimise(play, learnt, len(data), training, generator=generator, run=run)
        return FittedGenerator.of(players)

    def from_state_dict(self, state: Mapping[str, Tensor], context: ReleaseContext, config: ConfigT) -> FittedGenerator:
        overwritten = torch.Generator().manual_seed(0)
        players = self._players(context.pool.feature_shape, context.attributes, config, overwritten)
        players.generator.load_state_dict(below("generator", state))
        for k, members in enumerate(players.private):
            members.load_state_dict(below(f"private.{k}", state))
        return FittedGenerator.of(players.to(context.device))

    def _players(self, shape: Shape, attributes: tuple[Attribute, ...], config: ConfigT, generator: torch.Generator) -> Players:
        known = {role: with_role(attributes, role) if role in self.needs else () for role in ("private", "useful")}

        def classifier(n_classes: int, widths: Widths) -> nn.Module:
            return Classifier(shape, network_for("auto", shape, n_classes, widths))

        def build() -> Players:
            network, widths = self.generator(shape, config), self.widths(config)
            private = {a.name: Members([classifier(a.n_classes, w) for w in widths]) for a in known["private"]}
            useful = {a.name: classifier(a.n_classes, CLASSIFIER) for a in known["useful"]}
            ally, opponent = self.ally(shape, config), self.opponent(shape, known["private"], config)
            return Players(network, private, useful, ally, opponent)

        return drawn_from(generator, build)

    def _pretrain(self, game: Game, config: ConfigT, training: TrainConfig) -> None:
        """Trains classifiers and allies on originals, and the generator to reconstruct originals."""
        players, generator = game.players, game.players.generator

        def reading(rows: Tensor, epoch: int) -> dict[str, Tensor]:
            move = game.move(rows, epoch, game.features[rows])
            losses = move.private_losses() | move.useful_losses() | self.pretraining_loss(players, move.original, config)
            return {"total": total(losses)}

        def repeating(rows: Tensor, epoch: int) -> dict[str, Tensor]:  # noqa: ARG001 (every epoch is alike)
            made, records = generator.make(game.features[rows], game.random), game.features[rows]
            return {"total": (generator.space.standard(made) - generator.space.standard(records)).square().mean()}

        parts = enumerate((players.private, players.useful, players.ally))
        readers = {f"{k}.{name}": value for k, part in parts for name, value in part.state_dict(keep_vars=True).items()}
        for loss, learnt, epochs in (
            (reading, readers, config.classifier_epochs(training.epochs)),
            (repeating, generator.state_dict(keep_vars=True), config.identity_epochs if generator.can_repeat else 0),
        ):
            if epochs:
                pace = OptimiserConfig(epochs, training.batch_size, training.learning_rate, training.weight_decay)
                minimise(loss, learnt, len(game.features), pace, generator=game.random, run=TrainingContext())

    def _play(self, game: Game, objective: GeneratorLoss, config: ConfigT) -> BatchLoss:
        """The loss of a batch, for all players at once."""
        last_epoch, step, generator_terms = -1, 0, dict[str, Tensor]()  # terms of the generator's last step

        def batch_loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:
            nonlocal last_epoch, step, generator_terms
            # The generator moves in the first step of an epoch, so that a resumed training takes the same steps.
            last_epoch, step = epoch, step + 1 if epoch == last_epoch else 0
            generator_moves = step % config.adversary_steps == 0
            with torch.set_grad_enabled(generator_moves):
                released = game.players.generator.make(game.features[rows], game.random)
            seen = game.move(rows, epoch, released.detach())
            reading = {f"adversary_{name}": loss for name, loss in seen.private_losses().items()}
            reading |= {f"useful_{name}": loss for name, loss in seen.useful_losses().items()}
            reading |= self.opponents_loss(seen, config)
            learning = [loss for loss in reading.values() if loss.requires_grad]
            if generator_moves:
                with game.players.against_the_generator():
                    terms = objective(game.move(rows, epoch, released))
                learning += terms.values()
                generator_terms = {f"generator_{name}": term.detach() for name, term in terms.items()}
            return {"total": torch.stack(learning).sum(), **generator_terms, **reading}

        return batch_loss

"""Fine-tuning that keeps more: answers that hardly change with dropout or with small changes of words.

    R-Drop   ½ (L₁ + L₂) + α · ½ (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))      two passes, each with its own dropout
    SMART    L(x) + λ · (KL(p(x+δ) ‖ p(x)) + KL(p(x) ‖ p(x+δ)))   δ = ν + η · g / max|g|, ν ~ N(0, σ²),
                                                                  g = ∂KL(p(x) ‖ p(x+ν)) / ∂ν, max of a word
    FreeLB   1/K · Σ_k L(x + δ_k)                                 δ_k climbs L, ‖δ‖ ≤ ε for each text

Liang et al. 2021; Jiang et al. 2020, without their second part, the distance to an average of earlier
weights; Zhu et al. 2020. KL stands for the distance of two answers that suits the task: squared errors of
numbers, a yes or no for each label, the mean over tags. Each class computes the loss of a batch from the
model and the objective.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bermo.data.tasks import Kind
from bermo.encoders.families import family_of
from bermo.encoders.sites import encoder_of
from bermo.errors import BermoError
from bermo.method_spec import MethodSpec
from bermo.methods.distill import answer_distance, counts_of, logits_of
from bermo.models.encoder import BermoPreTrainedModel
from bermo.nn.losses import mean_over
from bermo.nn.perturb import Perturbation, ascend, normal, uniform
from bermo.training.job import Batch, LossOf, ModelCaller, Objective, compute_loss


@dataclass(frozen=True)
class RDrop:
    """Two passes with different dropout should agree."""

    kind: Kind
    weight: float

    def __call__(self, model: ModelCaller, objective: Objective, batch: Batch) -> Tensor:
        losses, answers = [], []
        for _ in range(2):
            outputs = model(**objective.call.arguments(batch))
            losses.append(objective(outputs, batch))
            answers.append(logits_of(outputs))
        gap = _both_ways(self.kind, answers[0], answers[1], batch)
        return (losses[0] + losses[1]) / 2 + self.weight * gap / 2


@dataclass(frozen=True)
class Smart:
    """Answers should hardly change where words change a little in the worst direction."""

    kind: Kind
    words: Perturbation
    weight: float = 1.0
    deviation: float = 1e-5
    step: float = 1e-3

    def __call__(self, model: ModelCaller, objective: Objective, batch: Batch) -> Tensor:
        arguments = objective.call.arguments(batch)
        outputs = model(**arguments)
        loss, answers = objective(outputs, batch), logits_of(outputs)
        mask_NT = batch["attention_mask"].flatten(0, -2)
        delta = normal(mask_NT, self.words.width, self.deviation).requires_grad_()
        with self.words.by(delta):
            gap = _distance(self.kind, logits_of(model(**arguments)), answers.detach(), batch)
        (grad,) = torch.autograd.grad(gap, delta)
        grad = grad / (grad.abs().amax(-1, keepdim=True) + 1e-6)
        with self.words.by((delta + self.step * grad).detach() * mask_NT[..., None]):
            changed = logits_of(model(**arguments))
        return loss + self.weight * _both_ways(self.kind, changed, answers, batch)


@dataclass(frozen=True)
class FreeLB:
    """The mean loss along a climb of the words' changes."""

    words: Perturbation
    num_steps: int = 3
    step: float = 0.1
    magnitude: float = 1.0
    radius: float = 0.6

    def __call__(self, model: ModelCaller, objective: Objective, batch: Batch) -> Tensor:
        mask_NT = batch["attention_mask"].flatten(0, -2)
        delta = uniform(mask_NT, self.words.width, self.magnitude)
        losses: list[Tensor] = []
        for index in range(self.num_steps):
            delta = delta.requires_grad_()
            with self.words.by(delta):
                losses.append(compute_loss(model, objective, batch))
            if index < self.num_steps - 1:
                (grad,) = torch.autograd.grad(losses[-1], delta, retain_graph=True)
                delta = ascend(delta.detach(), grad, self.step, self.radius)
        return torch.stack(losses).mean()


def make_loss_of(spec: MethodSpec, model: BermoPreTrainedModel, kind: Kind) -> LossOf:
    """Return how the loss of a batch is computed: by one pass, or as a method says."""
    if spec.rdrop is not None:
        return RDrop(kind, spec.rdrop)
    if spec.adversarial is None:
        return compute_loss
    config = encoder_of(model).config
    if family_of(config).layers.is_time_first:
        raise BermoError(f"--adversarial does not know {config.model_type}'s order of tokens. Leave it out.")
    words = Perturbation(model.get_input_embeddings())
    return Smart(kind, words) if spec.adversarial == "smart" else FreeLB(words)


def _both_ways(kind: Kind, one: Tensor, other: Tensor, batch: Batch) -> Tensor:
    return _distance(kind, one, other, batch) + _distance(kind, other, one, batch)


def _distance(kind: Kind, one: Tensor, other: Tensor, batch: Batch) -> Tensor:
    return mean_over(answer_distance(kind, one, other, batch), counts_of(batch))

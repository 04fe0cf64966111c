"""What a student can learn from a teacher: one number for each text, a mean over the parts of the text.

    soft targets   T² · KL(softmax(t/T) ‖ softmax(s/T))            Hinton, Vinyals & Dean 2015
    soft labels    the same of σ(t/T), a yes or no for each label, where a text may have several
    vectors        ‖s − t‖² / 2‖t‖² of a text's vector, 1 − cos    Reimers & Gurevych 2020
    neighbours     KL of softmax(V Vᵀ/τ), V = a batch's vectors,   RKD (Park et al. 2019), SEED (Fang et
                   each text without itself, τ = 0.05             al. 2021)
    hidden states  ‖h_S W − h_T‖² / D over unmasked tokens         TinyBERT (Jiao et al. 2020)
    embeddings     the same of h_0, with a W of its own            TinyBERT
    relations      KL of softmax(A Aᵀ/√d), A = queries, keys,      MiniLMv2 (Wang et al. 2021)
                   values in R relation heads of width d
    last attention KL of softmax(Q Kᵀ/√d) and softmax(V Vᵀ/√d)     MiniLM (Wang et al. 2020)
    attention      (Q Kᵀ/√d of student − of teacher)², the mean    TinyBERT
                   over heads and pairs of tokens
    cosine         1 − cos(h_S, h_T) over unmasked tokens          DistilBERT (Sanh et al. 2019)
    patient        ‖s/‖s‖ − t/‖t‖‖² / D of one token's vectors     PKD (Sun et al. 2019)

`mean_over` makes a batch's loss of them. Each text has the weight of its number of labels, so that a batch
split in parts keeps its mean. Padding never counts: not as a token, a key, or the start or end of a span.

Axes: B texts, T tokens, C labels, D hidden units, H heads, R relation heads, K their width.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bermo.nn.heads import IGNORED

NEIGHBOUR_TEMPERATURE = 0.05
"""Cosines of sentence vectors lie close together: unrelated texts at 0.7 to 0.8 in gte-small."""
UNITS_A_RELATION_HEAD = 16
"""Teacher units of one relation head: MiniLMv2 takes 48 heads for 768 units and 64 for 1024."""


def mean_over(losses_B: Tensor, counts_B: Tensor) -> Tensor:
    """Return Σ_b counts_b · losses_b / Σ_b counts_b, the mean over what the texts count; 0 for nothing."""
    counts_B = counts_B.to(losses_B.dtype)
    return (losses_B * counts_B).sum() / counts_B.sum().clamp(min=1)


def divergence(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return T² · KL(softmax(teacher/T) ‖ softmax(student/T)) over the last axis.

    T² keeps the gradient's size when T changes. An entry where both logits are −∞ adds nothing.
    """
    student, teacher = student.float() / temperature, teacher.float() / temperature
    log_student, log_teacher = student.log_softmax(-1), teacher.log_softmax(-1)
    is_open = log_teacher > -math.inf
    # Filled before the product, for 0 · (−∞ + ∞) is no number, and neither is its gradient.
    gap = log_teacher.masked_fill(~is_open, 0) - log_student.masked_fill(~is_open, 0)
    return (log_teacher.exp() * gap).sum(-1) * temperature**2


def soft_targets(student_BC: Tensor, teacher_BC: Tensor, temperature: float) -> Tensor:
    """Return each text's divergence over its labels or choices, (B,)."""
    return divergence(student_BC, teacher_BC, temperature)


def soft_labels(student_BC: Tensor, teacher_BC: Tensor, temperature: float) -> Tensor:
    """Return each text's T² · KL between a yes or no for each label, the mean over labels, (B,)."""
    student_BC, teacher_BC = student_BC.float() / temperature, teacher_BC.float() / temperature
    yes_BC = functional.logsigmoid(teacher_BC) - functional.logsigmoid(student_BC)
    no_BC = functional.logsigmoid(-teacher_BC) - functional.logsigmoid(-student_BC)
    share_BC = teacher_BC.sigmoid()
    return (share_BC * yes_BC + (1 - share_BC) * no_BC).mean(-1) * temperature**2


def soft_values(student_BC: Tensor, teacher_BC: Tensor) -> Tensor:
    """Return each text's squared error from the teacher's values, (B,): for regression."""
    return (student_BC.float() - teacher_BC.float()).square().mean(-1)


def soft_vectors(student: Tensor, teacher: Tensor) -> Tensor:
    """Return each row's ‖s − t‖² / 2‖t‖², the mean over its texts, (B,): 1 − cos for vectors of length 1."""
    student, teacher = student.float(), teacher.float()
    gap = (student - teacher).square().sum(-1) / (2 * teacher.square().sum(-1)).clamp(min=1e-12)
    return gap.view(len(gap), -1).mean(1)


def neighbour_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return each row's divergence of its cosines with the other rows of the batch, (B,); 0 for one alone.

    A text that is one of several in its row has the others of its row for neighbours too.
    """
    rows = len(student)
    student_ND, teacher_ND = (
        functional.normalize(vectors.float().reshape(-1, vectors.shape[-1]), dim=-1)
        for vectors in (student, teacher)
    )
    if len(student_ND) < 2:
        return student_ND.new_zeros(rows) + 0 * student_ND.sum()
    itself_NN = torch.eye(len(student_ND), dtype=torch.bool, device=student_ND.device)
    student_NN, teacher_NN = (
        (vectors_ND @ vectors_ND.T / NEIGHBOUR_TEMPERATURE).masked_fill(itself_NN, -math.inf)
        for vectors_ND in (student_ND, teacher_ND)
    )
    return divergence(student_NN, teacher_NN).view(rows, -1).mean(1)


def soft_tags(student_BTC: Tensor, teacher_BTC: Tensor, labels_BT: Tensor, temperature: float) -> Tensor:
    """Return each text's mean divergence over its labelled tokens, (B,); 0 for a text without any."""
    return token_mean(divergence(student_BTC, teacher_BTC, temperature), labels_BT != IGNORED)


def soft_spans(student_BT2: Tensor, teacher_BT2: Tensor, mask_BT: Tensor, temperature: float) -> Tensor:
    """Return each text's divergence over the indices of its real tokens, the mean of start and end, (B,)."""
    is_padding_B1T = ~mask_BT.bool()[:, None]
    student_B2T, teacher_B2T = (
        scores.float().transpose(1, 2).masked_fill(is_padding_B1T, -math.inf)
        for scores in (student_BT2, teacher_BT2)
    )
    return divergence(student_B2T, teacher_B2T, temperature).mean(-1)


def hidden_distance(student_BTD: Tensor, teacher_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return each text's ‖h_S − h_T‖²/D, the mean over its real tokens, (B,).

    A student of another width comes here projected to the teacher's: h_S W, with W learned beside it.
    """
    squares_BT = (student_BTD.float() - teacher_BTD.float()).square().mean(-1)
    return token_mean(squares_BT, mask_BT.bool())


def relation_distance(students: Sequence[Tensor], teachers: Sequence[Tensor], mask_BT: Tensor) -> Tensor:
    """Return each text's Σ over (queries, keys, values) of the divergence of their self-relations, (B,).

    One relation is softmax(A Aᵀ/√K) among a text's real tokens; its divergence is the mean over its tokens
    and relation heads. Both sides have the same number of relation heads; widths and attention heads may
    differ.
    """
    total_B = torch.zeros(len(mask_BT), device=mask_BT.device)
    for student_BTD, teacher_BTD in zip(students, teachers, strict=True):
        num_heads = relation_heads(student_BTD.shape[-1], teacher_BTD.shape[-1])
        student_BRTT = relations(student_BTD, mask_BT, num_heads)
        teacher_BRTT = relations(teacher_BTD, mask_BT, num_heads)
        divergence_BT = divergence(student_BRTT, teacher_BRTT).mean(1)
        total_B = total_B + token_mean(divergence_BT, mask_BT.bool())
    return total_B


def last_attention_distance(
    students: Sequence[Tensor], teachers: Sequence[Tensor], mask_BT: Tensor, num_heads: int
) -> Tensor:
    """Return each text's divergence of attention plus that of the values' relations, (B,).

    Both sides are queries, keys and values of as many heads; a divergence is the mean over heads and tokens.
    """
    total_B = torch.zeros(len(mask_BT), device=mask_BT.device)
    for first, second in ((0, 1), (2, 2)):
        student_BHTT = attention_scores(students[first], students[second], mask_BT, num_heads)
        teacher_BHTT = attention_scores(teachers[first], teachers[second], mask_BT, num_heads)
        divergence_BT = divergence(student_BHTT, teacher_BHTT).mean(1)
        total_B = total_B + token_mean(divergence_BT, mask_BT.bool())
    return total_B


def attention_distance(
    students: Sequence[Tensor], teachers: Sequence[Tensor], mask_BT: Tensor, num_heads: int
) -> Tensor:
    """Return each text's squared gap of attention scores before the softmax, the mean over heads and pairs of
    real tokens, (B,). Both sides are queries and keys of as many heads.
    """
    student_BHTT, teacher_BHTT = (
        attention_scores(queries, keys, mask_BT, num_heads) for queries, keys, *_ in (students, teachers)
    )
    is_pair_BTT = mask_BT.bool()[:, :, None] & mask_BT.bool()[:, None]
    # Filled before the difference: −∞ − (−∞) is no number, and neither is its gradient.
    filled = (scores.masked_fill(~is_pair_BTT[:, None], 0) for scores in (student_BHTT, teacher_BHTT))
    squares_BHTT = torch.sub(*filled).square()
    return squares_BHTT.sum((1, 2, 3)) / (num_heads * is_pair_BTT.sum((1, 2))).clamp(min=1)


def cosine_distance(student_BTD: Tensor, teacher_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return each text's 1 − cos(h_S, h_T), the mean over its real tokens, (B,)."""
    gaps_BT = 1 - functional.cosine_similarity(student_BTD.float(), teacher_BTD.float(), dim=-1)
    return token_mean(gaps_BT, mask_BT.bool())


def patient_distance(student_BD: Tensor, teacher_BD: Tensor) -> Tensor:
    """Return ‖s/‖s‖ − t/‖t‖‖² / D of each text's vectors, (B,)."""
    unit_S, unit_T = (functional.normalize(vectors.float(), dim=-1) for vectors in (student_BD, teacher_BD))
    return (unit_S - unit_T).square().mean(-1)


def relations(vectors_BTD: Tensor, mask_BT: Tensor, num_heads: int) -> Tensor:
    """Return the logits A Aᵀ/√K of each relation head, (B, R, T, T), −∞ where a key is padding."""
    return attention_scores(vectors_BTD, vectors_BTD, mask_BT, num_heads)


def attention_scores(first_BTD: Tensor, second_BTD: Tensor, mask_BT: Tensor, num_heads: int) -> Tensor:
    """Return the logits A Bᵀ/√K of each head, (B, H, T, T), −∞ where a key is padding."""
    first_BHTK, second_BHTK = (
        vectors_BTD.unflatten(-1, (num_heads, -1)).transpose(1, 2) for vectors_BTD in (first_BTD, second_BTD)
    )
    logits_BHTT = first_BHTK @ second_BHTK.transpose(-1, -2) / math.sqrt(first_BHTK.shape[-1])
    return logits_BHTT.float().masked_fill(~mask_BT.bool()[:, None, None], -math.inf)


def relation_heads(student_width: int, teacher_width: int) -> int:
    """Return the most relation heads that divide both widths evenly, none under 16 of the teacher's units."""
    common = math.gcd(student_width, teacher_width)
    most = max(1, teacher_width // UNITS_A_RELATION_HEAD)
    return max(heads for heads in range(1, most + 1) if common % heads == 0)


def token_mean(values_BT: Tensor, is_counted_BT: Tensor) -> Tensor:
    """Return the mean of each text's counted tokens, (B,); 0 where none is."""
    kept_BT = torch.where(is_counted_BT, values_BT, 0)
    return kept_BT.sum(1) / is_counted_BT.sum(1).clamp(min=1)


def even_map(num_student: int, num_teacher: int) -> tuple[int, ...]:
    """Return a teacher layer for each student layer, evenly spread up to the last: ⌈i · L_T / L_S⌉."""
    return tuple(-(-i * num_teacher // num_student) for i in range(1, num_student + 1))

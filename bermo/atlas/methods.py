"""The methods of the atlas. One more is an entry of `METHODS`: its name, its chain, what was published."""

from collections.abc import Mapping, Sequence

from bermo.atlas import published
from bermo.atlas.steps import Compress, Export, Method, Shrink, Train
from bermo.atlas.trainings import answered, for_int8, kept, pruned, taught, units
from bermo.atlas.variants import PAPERS, RULES, TUNED
from bermo.errors import BermoError, nearest
from bermo.spec import MixSpec

DENSE = "dense"
ALL = "all"
SPARSE = Export(to="sparse")
TERNARY = Train(changes={"method": {"quantize": "ternary"}}, is_taught=True, cost=1.6)

_LISTED = (
    Method(name=DENSE, group="as it is", summary="the encoder, fine-tuned; torch in fp32", steps=(Train(),)),
    Method(
        name="onnx",
        group="as it is",
        summary="the same model in onnxruntime, fp32",
        steps=(Export(to="onnx"),),
    ),
    Method(
        name="int8",
        group="quantisation",
        summary="int8 weights, ranges of activations by the batch",
        steps=(Export(),),
        published=(published.ONNX_INT8,),
    ),
    Method(
        name="int8-calibrated",
        group="quantisation",
        summary="int8 weights, ranges of activations fixed by training texts",
        steps=(Export(is_calibrated=True),),
        published=(published.OPENVINO_INT8,),
    ),
    Method(
        name="int8-kept",
        group="quantisation",
        summary="int8, but for the four matrices that it hurts most, which stay in fp32",
        steps=(Export(keep_fp32=4),),
        published=(published.Q_BERT,),
        is_usual=False,
    ),
    Method(
        name="gobo",
        group="quantisation",
        summary="three bits a weight on disk, outliers as they are; computed in fp32",
        steps=(Export(to="sparse", values="gobo"),),
        published=(published.GOBO,),
    ),
    Method(
        name="groups",
        group="quantisation",
        summary="three bits a weight on disk, a range for each group of rows; computed in fp32",
        steps=(Export(to="sparse", values="groups3"),),
        published=(published.Q_BERT,),
        is_usual=False,
    ),
    Method(
        name="groups2",
        group="quantisation",
        summary="the same in two bits a weight",
        steps=(Export(to="sparse", values="groups2"),),
        published=(published.Q_BERT,),
        is_usual=False,
    ),
    Method(
        name="qat",
        group="quantisation",
        summary="trained with int8 numbers in the last third, taught by the dense model",
        steps=(for_int8(Train(is_taught=True, cost=1.6)), Export()),
        published=(published.Q8BERT,),
    ),
    Method(
        name="ternary",
        group="quantisation",
        summary="weights of three values, taught by the dense model; computed in fp32",
        steps=(TERNARY, Export(to="sparse", values="gobo")),
        is_usual=False,
    ),
    Method(
        name="binary",
        group="quantisation",
        summary="weights of three values, then each the sum of two with two values, taught; computed in fp32",
        steps=(
            TERNARY,
            Train(changes={"method": {"quantize": "binary"}}, is_taught=True, goes_on=True, cost=1.6),
            Export(to="sparse", values="gobo"),
        ),
        published=(published.BINARYBERT,),
        is_usual=False,
    ),
    Method(
        name="magnitude",
        group="pruning",
        summary="the largest 10 % of the weights stay",
        steps=(pruned("magnitude"), SPARSE),
    ),
    Method(
        name="imp",
        group="pruning",
        summary="the smallest weights go in four rounds to 30 %, each begun from the encoder's own weights",
        steps=(pruned("magnitude", density=0.3, scope="global", rewind=4), SPARSE),
        published=(published.IMP,),
    ),
    Method(
        name="movement",
        group="pruning",
        summary="the 10 % of the weights stay that the loss feels most",
        steps=(pruned("movement"), SPARSE),
    ),
    Method(
        name="soft-movement",
        group="pruning",
        summary="weights stay whose learned score is over a threshold, aimed at 10 %",
        steps=(pruned("soft-movement"), SPARSE),
        needs_steps=True,
        published=(published.SOFT_MOVEMENT,),
    ),
    Method(
        name="l0",
        group="pruning",
        summary="weights stay whose hard concrete gate is open, aimed at 10 %",
        steps=(pruned("l0"), SPARSE),
        needs_steps=True,
    ),
    Method(
        name="proximal",
        group="pruning",
        summary="10 % of the weights stay after steps that pull small ones to zero, beside those of the loss",
        steps=(pruned("proximal"), SPARSE),
        published=(published.RPP,),
        is_usual=False,
    ),
    Method(
        name="fisher",
        group="pruning",
        summary="half of heads and neurons chosen by Fisher information and refitted, no training; int8",
        steps=(Shrink(fisher=0.5), Export()),
        published=(published.KCM,),
    ),
    Method(
        name="structured",
        group="pruning",
        summary="half of heads and neurons pruned with a teacher and deleted; int8",
        steps=(units(0.5), Shrink(), Export()),
        published=(published.MCCARLEY, published.ZIPLM),
    ),
    Method(
        name="ff2",
        group="pruning",
        summary="half of heads and neurons by gates with an L0 penalty, taught, and deleted; int8",
        steps=(units(0.5, by="l0"), Shrink(), Export()),
        published=(published.MCCARLEY,),
        is_usual=False,
        needs_steps=True,
    ),
    Method(
        name="first-layers",
        group="fewer layers",
        summary="the first half of the layers, fine-tuned by labels alone; int8",
        steps=(kept("first"), Export()),
        published=(published.POOR_MAN, published.LIN_6),
    ),
    Method(
        name="first-layers-taught",
        group="fewer layers",
        summary="the first half of the layers, taught by the dense model; int8",
        steps=(taught(0.5), Export()),
        published=(published.PKD_6,),
    ),
    Method(
        name="even-layers-taught",
        group="fewer layers",
        summary="every second layer, taught by the dense model; int8",
        steps=(taught(0.5, "even"), Export()),
        published=(published.DISTILBERT,),
    ),
    Method(
        name="quarter-taught",
        group="fewer layers",
        summary="the first quarter of the layers, taught by the dense model; int8",
        steps=(taught(0.25), Export()),
        published=(published.PKD_3,),
    ),
    Method(
        name="theseus",
        group="fewer layers",
        summary="half as many layers learn to replace pairs of the dense model's; int8",
        steps=(Train(is_taught=True, layers=0.5, which="theseus", cost=2.0), Export()),
        published=(published.THESEUS,),
    ),
    *(
        Method(
            name=f"{which}-layers",
            group="fewer layers",
            summary=f"half of the layers, {rule}, fine-tuned by labels alone; int8",
            steps=(kept(which), Export()),
            published=(published.POOR_MAN,),
            is_usual=False,
        )
        for which, rule in RULES.items()
    ),
    Method(
        name="power",
        group="fewer tokens",
        summary="layers hand on 40 % of the tokens in the mean, those that receive most attention; int8",
        steps=(
            Train(
                changes={
                    "method": {"keep_tokens": 0.4},
                    "model": {"pooling": "first", "mix": MixSpec(kind="none")},
                    "train": {"contrast": 0.0},
                }
            ),
            Export(),
        ),
        published=(published.POWER_BERT,),
    ),
    Method(
        name="low-rank",
        group="low rank",
        summary="every matrix and the table of words as two factors of half the numbers, taught; int8",
        steps=(
            Train(changes={"method": {"low_rank": 0.5, "embedding_rank": 0.5}}, is_taught=True, cost=1.8),
            Export(),
        ),
        published=(published.LADABERT, published.LOW_RANK),
    ),
    Method(
        name="structure-then-rank",
        group="low rank",
        summary="half of heads and neurons deleted, then two factors of half the numbers, taught again; int8",
        steps=(
            units(0.5),
            Shrink(low_rank=0.5, embedding_rank=0.5),
            Train(is_taught=True, goes_on=True, cost=1.2),
            Export(),
        ),
        published=(published.ROSITA,),
        is_usual=False,
    ),
    Method(
        name="tied",
        group="fewer layers",
        summary="layers share their weights in groups, a third as many sets, taught by the dense model; int8",
        steps=(Train(is_taught=True, tied=1 / 3, cost=1.4), Export()),
        published=(published.ALBERT,),
        is_usual=False,
    ),
    Method(
        name="thin-taught",
        group="students",
        summary="half of the layers with half of their neurons, taught by the dense model; int8",
        steps=(taught(0.5, neurons=0.5), Export()),
        published=(published.TINYBERT,),
    ),
    *(
        Method(
            name=f"{paper}-loss",
            group="students",
            summary=f"{what}, taught by the loss of {title}; int8",
            steps=(step, Export()),
            published=(row,),
            is_usual=False,
        )
        for paper, title, what, step, row in PAPERS
    ),
    Method(
        name="pd",
        group="students",
        summary="every second layer, taught by the dense model's answers alone, T = 1; int8",
        steps=(answered(0.5), Export()),
        published=(published.TURC,),
        is_usual=False,
    ),
    Method(
        name="words",
        group="chains",
        summary="words cut that the training texts do not have; int8",
        steps=(Shrink(cuts_words=True), Export()),
    ),
    Method(
        name="third-60",
        group="chains",
        summary="the first third of the layers, 60 % of their heads and neurons, taught; int8",
        steps=(units(0.6, 1 / 3), Shrink(), Export()),
        published=(published.DYNABERT,),
    ),
    Method(
        name="third-60-qat",
        group="chains",
        summary="the same, trained with int8 numbers in the last third",
        steps=(for_int8(units(0.6, 1 / 3)), Shrink(), Export()),
    ),
    Method(
        name="quarter-55-words",
        group="chains",
        summary="the first quarter of the layers, 55 % of their heads and neurons, taught; words cut; int8",
        steps=(units(0.55, 0.25), Shrink(cuts_words=True), Export()),
    ),
    *(
        Method(
            name=name,
            group="fine-tuning",
            summary=f"{summary}; int8",
            steps=(Train(changes={"method": method}, cost=cost), Export()),
            published=tuple(rows),
            is_usual=False,
        )
        for name, method, summary, cost, rows in TUNED
    ),
    Method(
        name="compress",
        group="chains",
        summary="what bermo compress chooses for 8 times the throughput",
        steps=(Compress(),),
        is_usual=False,
    ),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _LISTED}


BASELINES = ("tf-idf", "static")
"""What is fitted without an encoder (baselines.py)."""
STUDENTS = ("bilstm", "static-mlp")
"""What a dense model teaches that is no Transformer (students.py); they take part by their names."""
NAMES = (*METHODS, *STUDENTS, *BASELINES)


def choose(names: Sequence[str], is_tiny: bool = False) -> list[str]:
    """Return the methods that were named, in the order of the table and the dense one first; none named: the
    usual ones.
    """
    for name in names:
        if name != ALL and name not in NAMES:
            raise BermoError(f'There is no method "{name}".{nearest(name, [*NAMES, ALL])}')
    if names:
        return [name for name in NAMES if ALL in names or name in names or name == DENSE]
    usual = [name for name in METHODS if METHODS[name].is_usual]
    return [*(name for name in usual if not (is_tiny and METHODS[name].needs_steps)), *BASELINES]

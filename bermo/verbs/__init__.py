"""The verbs of the command: each module declares its options as a dataclass and does the work in `run`.

Heavy imports live inside `run`, so that --help imports none of them. `VERBS` is their order in the help.
"""

from collections.abc import Mapping

from bermo.verbs import (
    analyse,
    atlas,
    bench,
    catalogue,
    compress,
    demo,
    doctor,
    encode,
    evaluate,
    export,
    jobs,
    predict,
    pretrain,
    probe,
    push,
    recipe,
    report,
    search,
    serve,
    show,
    shrink,
    similar,
    train,
)
from bermo.verbs.verb import Verb

VERBS: Mapping[str, Verb] = {
    "demo": demo.VERB,
    "train": train.VERB,
    "evaluate": evaluate.VERB,
    "predict": predict.VERB,
    "encode": encode.VERB,
    "similar": similar.VERB,
    "pretrain": pretrain.VERB,
    "probe": probe.VERB,
    "analyse": analyse.VERB,
    "shrink": shrink.VERB,
    "export": export.VERB,
    "bench": bench.VERB,
    "compress": compress.VERB,
    "atlas": atlas.VERB,
    "serve": serve.VERB,
    "push": push.VERB,
    "list": catalogue.VERB,
    "show": show.VERB,
    "run": recipe.VERB,
    "jobs": jobs.VERB,
    "search": search.VERB,
    "report": report.VERB,
    "doctor": doctor.VERB,
}

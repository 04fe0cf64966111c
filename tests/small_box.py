"""The box of the tests: without weights, half as wide as an untrained one and far smaller than the real one.

Importing this makes it, and imports all that is heavy. Beside such a box most of a training would be the fits
that choose how it is read, so they take few iterations; `whole_fits` brings back as many as users have.
"""

import gc
import tempfile
from pathlib import Path

from transformers import AutoConfig

from bermo.encoders import where
from bermo.nn import linear_fit
from scripts.make_box import write_untrained

SMALL_BOX = Path(tempfile.mkdtemp(prefix="bermo-box-"))
write_untrained(SMALL_BOX)
small = AutoConfig.from_pretrained(SMALL_BOX)
small.update({"hidden_size": 32, "intermediate_size": 128})
small.save_pretrained(SMALL_BOX)
where.BOX = SMALL_BOX
ITERATIONS = linear_fit.ROUGH
linear_fit.ROUGH = 4
gc.freeze()  # a million objects of torch and transformers, walked through again and again otherwise

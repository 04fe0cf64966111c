"""The box of the tests: without weights, half as wide as an untrained one and far smaller than the real one.

Importing this makes it, and imports all that is heavy. The fits that choose how it is read are short
(short_fits.py); `whole_fits` brings back those of users.
"""

import gc
import tempfile
from pathlib import Path

from transformers import AutoConfig

from bermo.encoders import where
from scripts.make_box import write_untrained
from tests.short_fits import shorten

SMALL_BOX = Path(tempfile.mkdtemp(prefix="bermo-box-"))
write_untrained(SMALL_BOX)
small = AutoConfig.from_pretrained(SMALL_BOX)
small.update({"hidden_size": 32, "intermediate_size": 128})
small.save_pretrained(SMALL_BOX)
where.BOX = SMALL_BOX
shorten()
gc.freeze()  # a million objects of torch and transformers, walked through again and again otherwise

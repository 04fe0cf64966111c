"""The vectors of every layer, for any encoder and any text.

load_encoder(name) -> stream_vectors(encoder, texts)   h_0 … h_L of every token, a batch at a time
                   -> text_vectors(encoder, texts)     one vector a text and layer, kept on disk
"""

from bermo.vectors.encoder import Encoder, load_encoder
from bermo.vectors.pooled import TextVectors, text_vectors
from bermo.vectors.stream import TokenVectors, stream_vectors

__all__ = [
    "Encoder",
    "TextVectors",
    "TokenVectors",
    "load_encoder",
    "stream_vectors",
    "text_vectors",
]

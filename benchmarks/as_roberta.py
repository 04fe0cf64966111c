"""Write a BERT encoder in RoBERTa's shape: the same numbers for a text; other names, positions and inputs.

    python benchmarks/as_roberta.py BERT ROBERTA

RoBERTa counts positions from the padding's number + 1 and has one kind of token; so position p becomes row
p + padding + 1, the first kind's vector is kept, and the tokenizer gives no kinds: a second text of a pair is
told by the separator alone.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import RobertaConfig, RobertaModel

from bermo.encoders.backbone import load_encoder


def as_roberta(source: Path, out: Path) -> RobertaModel:
    """Load a BERT folder, write it as RoBERTa's, and return the model."""
    bert = load_encoder(str(source)).encoder
    known = bert.config.to_dict()
    shift = known["pad_token_id"] + 1
    kept = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    config = RobertaConfig(
        **{name: known[name] for name in (*kept, "pad_token_id", "hidden_act", "layer_norm_eps")},
        max_position_embeddings=known["max_position_embeddings"] + shift,
        type_vocab_size=1,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = RobertaModel(config, add_pooling_layer=False)
    weights = {name: value for name, value in bert.state_dict().items() if not name.startswith("pooler.")}
    positions = weights["embeddings.position_embeddings.weight"]
    weights["embeddings.position_embeddings.weight"] = torch.cat(
        [positions.new_zeros(shift, len(positions[0])), positions]
    )
    weights["embeddings.token_type_embeddings.weight"] = weights["embeddings.token_type_embeddings.weight"][
        :1
    ]
    own = model.state_dict()
    model.load_state_dict(
        own | {name: value for name, value in weights.items() if name in own and "_ids" not in name}
    )
    model.save_pretrained(out)
    shutil.copy(source / "tokenizer.json", out)
    named = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    named |= {
        "model_input_names": ["input_ids", "attention_mask"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(named, indent=1), encoding="utf-8")
    return model


if __name__ == "__main__":
    as_roberta(Path(sys.argv[1]), Path(sys.argv[2]))

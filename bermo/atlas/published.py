"""What was published of each method: the score kept, the speed and the size, with the source.

The primer is Rogers, Kovaleva and Rumshisky, "A Primer in BERTology" (TACL 2020), Table 1; the survey is
Ganesh et al., "Compressing large-scale Transformer-based models" (TACL 2021), Table 1. Both are relative to
BERT-base unless the row says otherwise.
"""

from bermo.atlas.steps import Published

PRIMER, SURVEY = "primer, Table 1", "survey, Table 1"


def _row(name: str, on: str, kept: str, faster: str, smaller: str, source: str = PRIMER) -> Published:
    return Published(name=name, on=on, kept=kept, faster=faster, smaller=smaller, source=source)


DISTILBERT = _row("DistilBERT", "GLUE, SQuAD", "90 % (authors: 97 %)", "1.6×", "1.5×")
PKD_6 = _row("BERT6-PKD", "six of GLUE, RACE", "98 %", "1.9×", "1.6×")
PKD_3 = _row("BERT3-PKD", "six of GLUE, RACE", "92 %", "3.7×", "2.4×")
TINYBERT = _row("TinyBERT, 4 layers", "GLUE, SQuAD", "96 %", "9.4×", "7.5×")
TURC = _row("PD, pretrained miniature", "six of GLUE", "98 %", "2.5× (of BERT-large)", "1.6×")
POOR_MAN = _row("Poor Man's BERT", "GLUE", "up to 98 %", "–", "1.7×", "arXiv 2004.03844, abstract")
ALBERT = _row("ALBERT-base, one layer's weights for all", "MNLI, SST-2", "97 %", "–", "9×")
THESEUS = _row("BERT-of-Theseus", "GLUE", "98 %", "1.9×", "1.6×")
Q8BERT = _row("Q8BERT", "GLUE, SQuAD", "99 %", "–", "4×")
Q_BERT = _row("Q-BERT, mixed precision", "MNLI, SST-2, CoNLL-03, SQuAD", "98 %", "–", "13×")
BINARYBERT = _row("BinaryBERT, 4-bit inputs", "GLUE", "79.9 (BERT 83.9)", "–", "25×", "BiT, README")
GOBO = _row("GOBO", "MNLI", "99 %", "–", "9.8×")
ONNX_INT8 = _row(
    "onnxruntime int8", "four sentence encoders", "99.7 %", "3.2×", "–", "sentence-transformers, efficiency"
)
OPENVINO_INT8 = _row(
    "OpenVINO int8", "four sentence encoders", "99.6 %", "5.3×", "–", "sentence-transformers, efficiency"
)
SOFT_MOVEMENT = _row("Soft movement, 3 % kept", "MNLI, QQP, SQuAD", "94 %", "–", "33×")
IMP = _row("IMP, rewinding", "GLUE, SQuAD", "94 to 100 %", "–", "1.4× to 2.5×")
RPP = _row("RPP", "seven of GLUE, SQuAD (BERT-large)", "99 %", "–", "1.7×")
MCCARLEY = _row("McCarley, ff2", "SQuAD, NQ (BERT-large)", "98 %", "1.9×", "2.2×")
ZIPLM = _row("ZipLM", "GLUE", "≥ 95 %", "15×", "–", "ICML 2023 workshop, abstract")
KCM = _row("KCM, no retraining", "GLUE, SQuAD", "≥ 96 %", "40 % fewer FLOPs", "–", "Nova 2023, abstract")
POWER_BERT = _row("PoWER-BERT", "GLUE, RACE", "99 %", "2× to 4.5×", "–")
LADABERT = _row("LadaBERT", "MNLI, QQP, SST-2", "0.7 points lost", "1.0× (CPU)", "2.5×", SURVEY)
LOW_RANK = _row("Noach and Goldberg", "MNLI, QQP, SST-2", "0.1 points lost", "1.05× (CPU)", "1.7×", SURVEY)
ROSITA = _row("ROSITA", "five of GLUE", "98.5 %", "–", "7.5×", "authors' abstract")
LIN_6 = _row("Six layers (Lin et al.)", "QQP, SST-2", "1.0 point lost", "–", "1.6×", SURVEY)
DYNABERT = _row("DynaBERT", "MNLI, QQP, SST-2", "1.0 point lost", "8.7× (CPU)", "3.2×", SURVEY)
BILSTM = _row("BiLSTM-soft (Tang et al.)", "MNLI, QQP, SST-2", "91 %", "434× (of BERT-large)", "110×")
MINILM = _row("MiniLM, 6 layers", "GLUE, SQuAD", "99 %", "2×", "1.65×")
LORA = _row("LoRA, r = 8", "SST-2 (RoBERTa-base)", "95.1 (all trained: 94.8)", "–", "–", "arXiv 2106.09685")
FREELB = _row("FreeLB", "GLUE", "79.4 (BERT 78.3)", "–", "–", "arXiv 1909.11764, abstract")
R_DROP = _row("R-Drop", "SST-2 (RoBERTa-large)", "96.9 (accuracy)", "–", "–", "arXiv 2106.14448")
SMART = _row("SMART", "MNLI", "85.6 (accuracy)", "–", "–", "arXiv 1911.03437")
TF_IDF = _row("TF-IDF + LR", "14 tasks, 1,000 rows each", "70.8 (encoder 82.8)", "919×", "–", "model2vec")
STATIC = _row("Static vectors", "14 tasks, 1,000 rows each", "79.2 (encoder 82.8)", "210×", "–", "model2vec")

#!/usr/bin/env bash
# What a trained model and its students give on this machine's CPU, in every form that its runtimes can run,
# all side by side in one bench.
#   benchmarks/ship_cpu.sh DATA OUT DENSE [STUDENT…]
#       DATA: rows with answers (sst2/dev.tsv); DENSE, STUDENT: runs or models' folders
# Each is exported to every form in FORMS that this machine can make (a form that is refused is reported and
# left out); then one bench takes turns over all of them with THREADS threads, the dense model in torch fp32
# being the baseline. Close everything else first.
#   THREADS=2 ROUNDS=5 CORES=0,1 (pinned by taskset, if it is there) FORMS="…" STUDENT_FORMS="…"
# Leaves OUT/bench/bench.json (with the processor's name), OUT/NAME-FORM/ and OUT/*.log; a folder that is
# there is not made again.
set -u
data=$1 out=$2 dense=$3; shift 3
python=${PYTHON:-python3} threads=${THREADS:-2}
forms=${FORMS:-onnx onnx-int8-signed onnx-int8-unsigned openvino openvino-bf16 openvino-int8 torch-bf16}
student_forms=${STUDENT_FORMS:-onnx-int8-signed onnx-int8-unsigned openvino openvino-bf16}
export OMP_NUM_THREADS=$threads PYTHONPATH=${PYTHONPATH:-.}
pin() { if command -v taskset > /dev/null; then taskset -c "${CORES:-0,1}" "$@"; else "$@"; fi; }
mkdir -p "$out"

folders=
# Arguments: folder, form… Exports one model.
make_forms() {
  local folder=$1 name form; shift
  name=$(basename "$folder")
  for form in "$@"; do
    if [ ! -d "$out/$name-$form" ]; then
      pin "$python" -m bermo export "$folder" --to "$form" --data "$data" --out "$out/$name-$form" > "$out/$name-$form.log" 2>&1 \
        || { echo "$name-$form: $(tail -n 2 "$out/$name-$form.log" | tr '\n' ' ' | cut -c 1-300)"; continue; }
    fi
    folders="$folders $out/$name-$form"
  done
}
make_forms "$dense" $forms
for student in "$@"; do make_forms "$student" $student_forms; done
rm -rf "$out/bench"
pin "$python" -m bermo bench "$dense" $folders --data "$data" --threads "$threads" --rounds "${ROUNDS:-5}" --out "$out/bench"

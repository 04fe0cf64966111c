#!/usr/bin/env bash
# Tests on an emulated 64-bit ARM processor (Neoverse N1), from an x86-64 Debian or Ubuntu machine.
#   scripts/test_on_arm.sh FOLDER TEST...        such as /tmp/arm tests/pruning tests/ship/export/test_quantize.py
# FOLDER gets an ARM Python with its libraries (apt) and the packages of constraints.txt as ARM wheels (pip), 1.5 GB,
# once. Needs qemu-aarch64 of QEMU 8 or later (Debian 13: qemu-user; QEMU=PATH names another): 7.2 cannot load
# onnxruntime. Emulation is 10 to 50 times slower; times mean nothing. torch is 2.10.0, the last one whose ARM wheel is
# built for CPUs; OpenVINO, which has no ARM wheel in this version, and what needs it are missing.
set -eu
folder=$(realpath -m "$1"); shift
here=$(realpath "$(dirname "$0")/..") qemu=${QEMU:-qemu-aarch64} pip=${PIP:-$here/.venv/bin/pip}
command -v "$qemu" > /dev/null || { echo "test_on_arm.sh: there is no $qemu. Install qemu-user." >&2; exit 1; }
libraries="libc6 libgcc-s1 libstdc++6 libgomp1 zlib1g libexpat1 libffi8 libssl3 libsqlite3-0 libbz2-1.0 liblzma5 libuuid1
  libreadline8 libtinfo6 libncursesw6 libnsl2 libtirpc3 libcrypt1 libdb5.3 libgfortran5
  libpython3.11-minimal libpython3.11-stdlib python3.11-minimal"
mkdir -p "$folder/debs" "$folder/wheels" "$folder/root" "$folder/site"

if [ ! -e "$folder/root/done" ]; then
  dpkg --print-foreign-architectures | grep -q arm64 || { dpkg --add-architecture arm64; apt-get update -qq; }
  (cd "$folder/debs"; for name in $libraries; do apt-get download -qq "$name:arm64"; done)
  for deb in "$folder"/debs/*.deb; do dpkg -x "$deb" "$folder/root"; done
  touch "$folder/root/done"
fi
if [ ! -e "$folder/site/done" ]; then
  platforms=$(for glibc in 2_17 2_24 2_26 2_27 2_28 2_31 2_34; do printf -- '--platform manylinux_%s_aarch64 ' $glibc; done)
  get() {
    $pip download -q --no-deps --only-binary :all: $platforms --platform manylinux2014_aarch64 --python-version 3.11 \
      --implementation cp --abi cp311 --abi abi3 --abi none -d "$folder/wheels" "$1" || echo "no ARM wheel: $1" >&2
  }
  grep -Ev '^(#|torch==|ruff|mypy|zensical)' "$here/constraints.txt" | grep -o '^[^ ;]*==[^ ;]*' | while read -r one; do get "$one"; done
  get torch==2.10.0
  for wheel in "$folder"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder/site"; done
  # Processes that tests start are emulated too.
  echo "import sys; sys.executable = '$folder/python'" > "$folder/site/sitecustomize.py"
  touch "$folder/site/done"
fi
cat > "$folder/python" << END
#!/usr/bin/env bash
export PYTHONHOME=$folder/root/usr PYTHONPATH=$here:$folder/site PYTHONPYCACHEPREFIX=$folder/pyc OMP_NUM_THREADS=1
exec $qemu -cpu neoverse-n1 -L $folder/root $folder/root/usr/bin/python3.11 "\$@"
END
chmod +x "$folder/python"
cd "$here"
HF_HUB_OFFLINE=1 exec "$folder/python" -m pytest -o addopts= -p no:cacheprovider -p no:xdist -q -rfE "$@"

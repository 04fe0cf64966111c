# A model behind HTTP: docker build -t mine --build-arg MODEL=runs/mine-onnx-int8 .
FROM python:3.12-slim

WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY bermo ./bermo
# torch for the CPU alone is a tenth of the size of the one with CUDA.
RUN pip install --no-cache-dir -c constraints.txt --index-url https://download.pytorch.org/whl/cpu torch \
    && pip install --no-cache-dir -c constraints.txt ".[serve,onnx]"

ARG MODEL
# Without a name COPY would take the whole repository.
RUN test -n "${MODEL}"
COPY ${MODEL} /models/model
RUN useradd --system --no-create-home server
USER server
ENV BERMO_CACHE=/tmp/bermo

EXPOSE 8000
HEALTHCHECK --start-period=60s CMD \
    ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health')"]
# exec form: SIGTERM reaches bermo, which finishes what it took.
ENTRYPOINT ["bermo", "serve", "/models/model", "--host", "0.0.0.0", "--port", "8000"]

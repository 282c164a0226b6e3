# CPU:  docker build -t cory .
# CUDA: docker build -t cory --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
# Run:  docker run --rm -v "$PWD/runs:/work/runs" cory train         (CUDA: docker run --gpus all ...)
ARG PYTHON=3.12
FROM python:${PYTHON}-slim

# PyTorch's CUDA wheels bring the CUDA libraries; the driver is the host's.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Extras, separated by commas, with brackets: --build-arg EXTRAS=[math,wandb]
ARG EXTRAS=

WORKDIR /src
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt --index-url ${TORCH_INDEX} torch \
    && pip install --no-cache-dir --constraint constraints.txt ".${EXTRAS}" \
    && rm -rf /src && useradd --create-home cory && mkdir /work && chown cory /work

USER cory
WORKDIR /work
ENTRYPOINT ["cory"]
CMD ["doctor"]

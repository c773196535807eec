# The steps of the README in an image, with JupyterLab on port 8888. docs/ways-in.md says what of it was tried.
#   docker build -t grpo-notebooks . && docker run --rm -it -p 127.0.0.1:8888:8888 grpo-notebooks
# For an NVIDIA GPU, where Docker has NVIDIA's container toolkit:
#   docker build --target gpu -t grpo-notebooks:gpu . && docker run --rm -it --gpus all -p 127.0.0.1:8888:8888 grpo-notebooks:gpu
FROM python:3.11-slim-bookworm AS base
RUN apt-get update && apt-get install -y --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home learner && install -d -o learner -g learner /home/learner/grpo-notebooks
ENV PIP_NO_CACHE_DIR=1
USER learner
WORKDIR /home/learner/grpo-notebooks
COPY --chown=learner:learner . .
EXPOSE 8888
CMD [".venv/bin/jupyter", "lab", "notebooks", "--ip=0.0.0.0", "--no-browser"]

# The wheels of the GPU set bring CUDA with them, and the host's driver comes with --gpus; Triton compiles with gcc.
FROM base AS gpu
ARG PIP_EXTRA_INDEX_URL
USER root
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
USER learner
RUN ./install.sh --gpu

# The last one, so that it is built where no target is named. `--build-arg PIP_EXTRA_INDEX_URL=` and the address of PyTorch's
# index of CPU wheels keeps 3 GB of CUDA out of it.
FROM base AS cpu
ARG PIP_EXTRA_INDEX_URL
RUN ./install.sh

# syntax=docker/dockerfile:1

# Two images: `docker build --target gateway` (no torch: a gateway in front of vendors, the default)
# and `docker build --target torch` (models in this process too). Neither has been built yet: this was
# written where no Docker daemon runs. hadolint has nothing to say of it.

ARG PYTHON=3.11-slim-bookworm

# The wheel, of the sources alone -------------------------------------------------------------------

FROM python:${PYTHON} AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY scripts/long_description.py scripts/
COPY llama_compat llama_compat
COPY providers providers
COPY routing routing
COPY templates templates
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# What both have ------------------------------------------------------------------------------------

FROM python:${PYTHON} AS base
ENV PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    LLAMA_COMPAT_HOME=/models \
    XDG_DATA_HOME=/data
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin llama \
    && install --directory --owner=llama /models /data
COPY constraints.txt /etc/llama-compat/constraints.txt
COPY --from=wheel /wheels /wheels
# What it serves until a template of yours is mounted here.
COPY templates/echo.yaml /config/template.yaml

# Models in this process ----------------------------------------------------------------------------

FROM base AS torch
# The build for CPUs; for NVIDIA GPUs: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130,
# with --build-arg C_COMPILER="gcc libc6-dev" for Triton, which compiles what launches its kernels.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG C_COMPILER=""
# hadolint ignore=DL3008,SC2086
RUN if [ -n "$C_COMPILER" ]; then \
      apt-get update \
      && apt-get install --yes --no-install-recommends $C_COMPILER \
      && rm -rf /var/lib/apt/lists/*; \
    fi
RUN wheel="$(echo /wheels/*.whl)" \
    && pip install --no-cache-dir --constraint /etc/llama-compat/constraints.txt \
      --extra-index-url "$TORCH_INDEX" "${wheel}[torch,postgres,redis,prices,metrics]"
COPY templates/starter.yaml /config/template.yaml
USER 10001
VOLUME ["/models", "/data"]
EXPOSE 8321
HEALTHCHECK --interval=15s --timeout=5s --start-period=10m --start-interval=2s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8321/health', timeout=4)"]
ENTRYPOINT ["llama-compat"]
CMD ["run", "/config/template.yaml", "--host", "0.0.0.0", "--port", "8321", "--pull", "--log-format", "json"]

# A gateway -----------------------------------------------------------------------------------------

FROM base AS gateway
RUN wheel="$(echo /wheels/*.whl)" \
    && pip install --no-cache-dir --constraint /etc/llama-compat/constraints.txt \
      "${wheel}[postgres,redis,prices,metrics]"
USER 10001
VOLUME ["/data"]
EXPOSE 8321
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --start-interval=1s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8321/health', timeout=4)"]
ENTRYPOINT ["llama-compat"]
CMD ["run", "/config/template.yaml", "--host", "0.0.0.0", "--port", "8321", "--log-format", "json"]

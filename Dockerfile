# syntax=docker/dockerfile:1

# A tag can be moved to another image. For builds that are the same next year, name the digest of the image as well:
#   docker buildx imagetools inspect python:3.13-slim-bookworm        shows it
#   docker build --build-arg BASE_IMAGE=python:3.13-slim-bookworm@sha256:... .
ARG BASE_IMAGE=python:3.13-slim-bookworm

# --- build: the environment and the compiled kernels
FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/oubli/venv \
 && /opt/oubli/venv/bin/pip install --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY core core
COPY app app
COPY oubli oubli
COPY docker/entrypoint.sh docker/healthcheck.py docker/processor.sh /opt/oubli/docker/
# An image keeps whole seconds only: the times of the source files are set before compiling, so that every build is alike.
RUN /opt/oubli/venv/bin/pip install --no-deps --no-build-isolation . \
 && find /opt/oubli/venv -path '*/site-packages/oubli/core/*' -name '*.py' -exec touch -d '2020-01-01 00:00:00 UTC' {} + \
 && . /opt/oubli/docker/processor.sh \
 && NUMBA_CACHE_DIR=/opt/oubli/kernels /opt/oubli/venv/bin/oubli warm-up
COPY examples/README.md examples/adult.csv.gz /opt/oubli/examples/

# --- run: no compiler, no package index, no root
FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="Oubli" \
      org.opencontainers.image.description="A model server that learns and forgets single samples, exactly" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN install -d -m 0700 -o 10001 -g 10001 /var/lib/oubli
COPY --from=build /opt/oubli /opt/oubli
ENV PATH=/opt/oubli/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/tmp/oubli-kernels \
    OUBLI_HOST=0.0.0.0
# ./oubli-data, where the model is kept, is below the working directory: mount a volume here.
WORKDIR /var/lib/oubli
VOLUME /var/lib/oubli
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "/opt/oubli/docker/healthcheck.py"]
ENTRYPOINT ["/opt/oubli/docker/entrypoint.sh"]
CMD ["serve", "--data", "/opt/oubli/examples/adult.csv.gz", "--target", "income"]

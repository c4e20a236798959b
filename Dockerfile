# The images of Milepost: `operator` runs in the cluster once, `executor` is what an agent's image builds on.
#
# An author's image needs no pip in its last stage. Pure Python goes to /app, which is on Python's path:
#
#     FROM <executor image>
#     COPY my_agent my_agent
#
# Dependencies are made in a stage of their own, on a base with the same Python, and copied:
#
#     FROM python:3.11-slim-bookworm AS dependencies
#     COPY requirements.txt .
#     RUN pip install --no-cache-dir --target=/dependencies -r requirements.txt
#     FROM <executor image>
#     COPY --from=dependencies /dependencies /app
#     COPY my_agent my_agent
#
# BASE holds Python 3.11 and certificates; BUILD_BASE can make virtual environments as well. Both have their
# Python at the same path, since the environment made on the one is run on the other.
ARG BASE=python:3.11-slim-bookworm
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS tools
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_CERT
ARG PIP_DEFAULT_TIMEOUT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY locks/build.txt locks/
RUN python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install --quiet --only-binary=:all: --require-hashes -r locks/build.txt

# The dependencies, without the project: this layer changes only with the locks.
FROM tools AS executor-dependencies
COPY locks/executor.txt locks/
RUN python3 -m venv --without-pip /opt/venv \
    && /opt/tools/bin/pip --python /opt/venv/bin/python install --quiet --no-compile --only-binary=:all: \
       --require-hashes -r locks/executor.txt \
    # Trusting compiled code without a look at its source saves a pod's start the looks.
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/venv

FROM tools AS operator-dependencies
COPY locks/operator.txt locks/
RUN python3 -m venv --without-pip /opt/venv \
    && /opt/tools/bin/pip --python /opt/venv/bin/python install --quiet --no-compile --only-binary=:all: \
       --require-hashes -r locks/operator.txt \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/venv

FROM tools AS project
COPY pyproject.toml README.md LICENSE ./
COPY sdk sdk
COPY operator operator
RUN /opt/tools/bin/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir=/wheels . \
    && python3 -m venv --without-pip /opt/venv \
    && /opt/tools/bin/pip --python /opt/venv/bin/python install --quiet --no-compile --no-deps --no-index \
       --prefix=/project /wheels/*.whl \
    && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /project

FROM ${BASE} AS run
# A stock Python image brings pip along; in others there is nothing to remove.
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/site-packages/setuptools* \
    /usr/local/lib/python3*/site-packages/wheel* /usr/local/lib/python3*/ensurepip /usr/local/bin/pip*
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/app
WORKDIR /app
USER 65532:65532

FROM run AS operator
COPY --from=operator-dependencies /opt/venv /opt/venv
COPY --from=project /project /opt/venv
ENTRYPOINT ["python", "-m", "milepost_operator"]

FROM run AS executor
COPY --from=executor-dependencies /opt/venv /opt/venv
COPY --from=project /project /opt/venv
ENTRYPOINT ["python", "-m", "milepost.executor"]

# docker build -t bestarm-agent . && docker run --rm bestarm-agent demo
# Extras: docker build --build-arg EXTRAS=metrics,postgres -t bestarm-agent .

FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY providers providers
COPY judges judges
COPY prompts prompts
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
ARG EXTRAS=""
RUN python -m venv --without-pip /opt/venv \
    && pip --python /opt/venv/bin/python install --no-cache-dir "$(ls /wheels/*.whl)${EXTRAS:+[$EXTRAS]}"

FROM python:3.13-slim
COPY --from=build /opt/venv /opt/venv
RUN useradd --create-home --uid 1000 bestarm && install --directory --owner=bestarm /study
ENV PATH="/opt/venv/bin:$PATH"
USER bestarm
WORKDIR /study
ENTRYPOINT ["bestarm-agent"]
CMD ["--help"]

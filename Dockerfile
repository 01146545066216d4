# OpsAssay as an image: docker build -t opsassay . ; docker run --rm -it opsassay demo
# Network namespaces, and with them packet faults and seals, need `--privileged`; without it systems run on the plain level.
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends iproute2 util-linux && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/opsassay
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY src src
COPY examples examples
RUN sed -e '/^ /d' -e 's/ \\$//' requirements.lock > constraints.txt && pip install --no-cache-dir -c constraints.txt '.[testbed,agents,apis,audit,ciso,server]'
WORKDIR /work
ENTRYPOINT ["opsassay"]
CMD ["--help"]

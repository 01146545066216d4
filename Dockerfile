# OpsAssay as an image: docker build -t opsassay . ; docker run --rm -it opsassay demo
# Network namespaces, and with them packet faults and seals, need `--privileged --user root`; without it systems run on the plain
# level, as a user other than root: where root may not mount, its database servers could not use what it owns.
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends iproute2 util-linux && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/opsassay
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY src src
COPY examples examples
RUN sed -e '/^ /d' -e 's/ \\$//' requirements.lock > constraints.txt && pip install --no-cache-dir -c constraints.txt '.[testbed,agents,apis,audit,ciso,server]'
RUN useradd --create-home opsassay && install -d -o opsassay /work
USER opsassay
WORKDIR /work
ENTRYPOINT ["opsassay"]
CMD ["--help"]

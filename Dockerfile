# OpsAssay as an image: docker build -t opsassay . ; docker run --rm -it opsassay demo
# Where the runtime allows user namespaces (Podman does, Docker's own profile does not) systems have packet faults; elsewhere they
# run on the plain level. Seals need `--privileged`. Not root: without privileges his database servers could not use what he owns.
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends iproute2 util-linux && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/opsassay
COPY pyproject.toml README.md LICENSE requirements.lock install.py ./
COPY src src
COPY examples examples
RUN sed -e '/^ /d' -e 's/ \\$//' requirements.lock > constraints.txt && pip install --no-cache-dir -c constraints.txt '.[testbed,agents,apis,audit,ciso,server]' && python install.py --opa
RUN useradd --create-home opsassay && install -d -o opsassay /work
USER opsassay
WORKDIR /work
ENTRYPOINT ["opsassay"]
CMD ["--help"]

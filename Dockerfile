# flowctl as a container for cron: jars and the JVM's class-data archive are in the image, so a run fetches nothing.
#   docker build -t flowctl .        docker run --rm -v "$PWD:/work" flowctl apply spec.yaml
FROM python:3.11-slim-bookworm

COPY . /src
RUN /src/scripts/install-system.sh java
RUN /src/scripts/install-python.sh /opt/flowctl image

ENV PATH=/opt/flowctl/bin:$PATH FLOWCTL_HOME=/opt/flowctl/home
RUN flowctl setup
RUN chmod -R a+rX /opt/flowctl/home && rm -rf /src /var/lib/apt/lists

RUN useradd --create-home flowctl
USER flowctl
WORKDIR /work
ENTRYPOINT ["flowctl"]

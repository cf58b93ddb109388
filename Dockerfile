# A server or a worker of Tidemill from this clone. `tidemill export docker` writes the same for a release.
#
#   docker build --tag tidemill .

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS install
ARG EXTRAS=postgres,uvloop
COPY . /src
# The build of the package builds the web UI and the documentation too.
RUN python -m venv /opt/tidemill \
 && /opt/tidemill/bin/pip install --no-cache-dir "/src[${EXTRAS}]" \
 # Litestar names it for the tests of its users. It takes a quarter of the space, and a server does not import it.
 && /opt/tidemill/bin/pip uninstall --yes faker polyfactory

FROM python:${PYTHON}-slim
# The number of the user is fixed: volumes and security policies name it.
RUN groupadd --gid 10001 tidemill \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/tidemill --shell /usr/sbin/nologin tidemill \
 && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/tidemill
COPY --from=install /opt/tidemill /opt/tidemill
# The address of a database with a password belongs into the environment of the container, never into a layer.
ENV PATH=/opt/tidemill/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TIDEMILL_STORE=sqlite:////var/lib/tidemill/tidemill.db
USER 10001:10001
WORKDIR /var/lib/tidemill
VOLUME /var/lib/tidemill
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=6 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/health/live', timeout=2)"]
ENTRYPOINT ["tidemill"]
CMD ["server", "--host", "0.0.0.0", "--port", "8080"]

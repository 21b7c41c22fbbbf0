# infloop in a container: the server, with git, Python and Deno for what its runs start.
#
# compose.yml is the way to run it. The image holds no secret and needs no capability, and its root
# can be read-only: what is written goes to the two volumes and to /tmp.

# Debian with the Python that infloop is tested with. Another one goes here, such as your own mirror's.
ARG BASE=python:3.11-slim

# -- build: an environment in which every package is the one that the lock file names ----------------
FROM ${BASE} AS build
WORKDIR /build
RUN python -m venv --without-pip /opt/infloop
COPY requirements-image.lock ./
RUN python -m pip --python /opt/infloop/bin/python install --no-cache-dir --require-hashes \
        -r requirements-image.lock
COPY LICENSE README.md pyproject.toml ./
COPY docs docs
COPY src src
# The lock file has brought what builds it: nothing is fetched that has no hash.
RUN python -m pip --python /opt/infloop/bin/python install --no-cache-dir --no-deps \
        --no-build-isolation .

# -- the image ---------------------------------------------------------------------------------------
FROM ${BASE}
LABEL org.opencontainers.image.title="infloop" \
      org.opencontainers.image.description="Runs agent loops durably, and can prove what they did." \
      org.opencontainers.image.licenses="MIT"

# One fixed user, so that volumes keep their owner from image to image. Nothing may change user, so
# no program needs to be set-uid. A volume takes over the owner of the directory it is mounted on, and
# the tmpfs of some engines the mode of /tmp. The standard library is compiled here, because it cannot
# be later, on a read-only root.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --home-dir /var/lib/infloop --no-create-home \
        --shell /usr/sbin/nologin infloop \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/infloop \
    && install -d -o 10001 -g 10001 -m 0755 /workspaces \
    && chmod 1777 /tmp \
    && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && python -m compileall -q -j 0 "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/infloop /opt/infloop
# By name, and not by PATH: the python3 of a script node is the plain one, without infloop's packages.
RUN ln -s /opt/infloop/bin/infloop /usr/local/bin/infloop

USER 10001:10001
# The data directory is below HOME, on the same volume.
ENV HOME=/var/lib/infloop
WORKDIR /workspaces
VOLUME ["/var/lib/infloop", "/workspaces"]

EXPOSE 3000
# As a program of the image itself: nothing is installed for it.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 3000, timeout=5); c.request('GET', '/readyz'); raise SystemExit(c.getresponse().status != 200)"]
# On all addresses of the container, so it does not start without INFLOOP_API_TOKEN.
ENTRYPOINT ["infloop"]
CMD ["serve", "--host", "0.0.0.0", "--port", "3000"]

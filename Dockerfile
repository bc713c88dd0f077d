# One image for one device, several GPUs or many machines. GPU by default; --build-arg ACCELERATOR=cpu for CPU.
# KERAS_BACKEND=jax, with ACCELERATOR=jax-cpu or jax-gpu, puts Keras on JAX, without TensorFlow.
# --build-arg WITH_R=1 adds R. scripts/build.sh sets all build arguments. There is no `# syntax=` line and no heredoc, so
# that the frontend of a 20.10 daemon is enough, without a registry.
ARG BASE_IMAGE=debian:bookworm-20260713-slim@sha256:7b140f374b289a7c2befc338f42ebe6441b7ea838a042bbd5acbfca6ec875818
ARG WITH_R=0
ARG KERAS_BACKEND=tensorflow

# ---- base: the operating system's part of the image ----
FROM ${BASE_IMAGE} AS base
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# Only packages that the base lacks are installed:
#   python3          runs everything (3.11 to 3.13: Keras 3.15 and tf-keras set the limits)
#   tini             PID 1: forwards signals, reaps children
#   ca-certificates  downloads by TFDS and by your code
RUN --mount=type=tmpfs,target=/var/lib/apt/lists --mount=type=tmpfs,target=/var/cache/apt \
    missing=(); \
    python3 -c 'import ssl, venv' 2>/dev/null || missing+=(python3); \
    [ -x /usr/bin/tini ] || missing+=(tini); \
    [ -s /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates); \
    if [ "${#missing[@]}" != 0 ]; then \
        apt-get update -qq; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; \
        rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/debconf/*-old; \
    fi; \
    python3 -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit("BASE_IMAGE has Python %d.%d; cluster-trainer needs 3.11 to 3.13." % v)'
# User 1000 (--non-unique, because an Ubuntu base has a user of that id). Any other user id works, too: all users may
# write to the four folders, as to /tmp.
RUN groupadd --non-unique --gid 1000 trainer; \
    useradd --non-unique --uid 1000 --gid 1000 --no-log-init --no-create-home --shell /bin/bash trainer; \
    mkdir -m 1777 /home/trainer /workspace /data /runs

# ---- installer: pip, its build tool, strip and patch. It is bind-mounted below, and not part of the image ----
FROM base AS installer
RUN apt-get update -qq; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends binutils patch; \
    python3 -c 'import ensurepip' 2>/dev/null || apt-get install -y -qq --no-install-recommends python3-venv; \
    python3 -m venv /installer
COPY requirements/installer.txt scripts/image-install.sh /installer/
RUN --mount=type=cache,target=/srv \
    --mount=type=secret,id=ca,target=/srv/ca.pem --mount=type=secret,id=pip_conf,target=/srv/pip.conf \
    /installer/image-install.sh /installer/bin/python -r /installer/installer.txt

# ---- locks: the files that the next layer needs, so that other files of their folders do not invalidate its cache ----
FROM scratch AS locks
ARG ACCELERATOR=gpu
COPY requirements/${ACCELERATOR}.txt /requirements.txt
COPY requirements/trim.txt /trim.txt
COPY patches/*.patch /patches/
COPY scripts/apply-patches.sh /

# ---- runtime: the Python environment, installed in its final place (a copy between stages would double its size) ----
# The bytecode is not checked against the sources, which never change. Some file systems change a file's time when a layer
# is made, and Python would compile such files again at each start.
# cluster-trainer.pth: our own packages, and code that each Python process of a command runs first. The entrypoint does
# not run it, because it is isolated (-I), nor does the build, which has neither the variable nor our packages yet.
# packages.pth: Python looks for the packages of a requirements.txt after its own (site runs the line at each start).
# patches/: patches of installed packages. If one does not apply, the build fails.
# The mount points exist in every Debian and Ubuntu (/mnt, /media, /srv), so no empty folder is left.
FROM base AS runtime
# DL4006: the stage inherits its shell, with pipefail, from base.
# hadolint ignore=DL4006
RUN --mount=type=bind,from=installer,target=/mnt --mount=type=bind,from=locks,target=/media \
    --mount=type=cache,target=/srv \
    --mount=type=secret,id=ca,target=/srv/ca.pem --mount=type=secret,id=pip_conf,target=/srv/pip.conf \
    python3 -m venv --without-pip /opt/venv; \
    /mnt/installer/image-install.sh /opt/venv/bin/python -r /media/requirements.txt; \
    packages=$(echo /opt/venv/lib/python3.*/site-packages); \
    sed -e 's/ *#.*//' -e '/^$/d' /media/trim.txt | while read -r pattern; do \
        find "$packages" -path "$packages/$pattern" -prune -exec rm -rf {} +; \
    done; \
    [ ! -d "$packages/tensorflow" ] || find "$packages/tensorflow" -name '*.so*' -size +1M -exec \
        env LD_LIBRARY_PATH="$(echo /mnt/usr/lib/*-linux-gnu)" /mnt/usr/bin/strip --strip-unneeded {} +; \
    PATH="$PATH:/mnt/usr/bin" LD_LIBRARY_PATH="$(echo /mnt/usr/lib/*-linux-gnu)" \
        /media/apply-patches.sh /media/patches "$packages"; \
    printf '%s\n' /opt/cluster-trainer{,/trainer} \
        'import os, sys; "CLUSTER_TRAINER_VERSION" in os.environ and not sys.flags.isolated and __import__("cluster_trainer_start").begin()' \
        > "$packages/cluster-trainer.pth"; \
    echo 'import os, site; "PACKAGES_DIR" in os.environ and site.addsitedir(os.environ["PACKAGES_DIR"])' \
        > "$packages/packages.pth"; \
    /opt/venv/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/venv/lib

# ---- prepared: the embedded data set and the names that TFDS knows; the tools are not part of the image ----
FROM runtime AS prepared-tensorflow
COPY requirements/digits.txt /locks/
RUN --mount=type=bind,from=installer,target=/mnt --mount=type=cache,target=/srv \
    --mount=type=secret,id=ca,target=/srv/ca.pem --mount=type=secret,id=pip_conf,target=/srv/pip.conf \
    /mnt/installer/image-install.sh /opt/venv/bin/python --target /scikit-learn -r /locks/digits.txt
COPY trainer/cluster_trainer/__init__.py /opt/cluster-trainer/trainer/cluster_trainer/
COPY trainer/cluster_trainer/data/__init__.py /opt/cluster-trainer/trainer/cluster_trainer/data/
COPY trainer/cluster_trainer/data/preparing/__init__.py trainer/cluster_trainer/data/preparing/digits.py \
    /opt/cluster-trainer/trainer/cluster_trainer/data/preparing/
RUN export PYTHONPATH=/scikit-learn TF_CPP_MIN_LOG_LEVEL=2 CUDA_VISIBLE_DEVICES=-1; \
    /opt/venv/bin/python -m cluster_trainer.data.preparing.digits /prepared/data; \
    /opt/venv/bin/python -c 'import tensorflow_datasets as tfds; print(*tfds.list_builders(with_community_datasets=False), sep="\n")' \
        > /prepared/tfds-names.txt; \
    rm -r /prepared/data/downloads; \
    chmod -R a+rX /prepared

# JAX's image has neither TensorFlow Datasets nor the trainer program, whose data these are.
FROM runtime AS prepared-jax
RUN mkdir /prepared

# DL3006: a stage has no tag.
# hadolint ignore=DL3006
FROM prepared-${KERAS_BACKEND} AS prepared

# ---- pip: for your requirements.txt, in a folder that is neither on sys.path nor on PATH ----
FROM runtime AS pip
COPY scripts/image_packages.py /
RUN --mount=type=bind,from=installer,target=/mnt \
    mkdir /opt/pip; \
    cp -r /mnt/installer/lib/python3.*/site-packages/pip{,-*.dist-info} /opt/pip; \
    find /opt/pip -name __pycache__ -prune -exec rm -r {} +; \
    /opt/venv/bin/python /image_packages.py /opt/pip

# ---- pictures: the pictures of two packages, for `make data-sample`; not part of the image ----
FROM installer AS picture-packages
COPY requirements/pictures.txt /locks/
RUN --mount=type=cache,target=/srv \
    --mount=type=secret,id=ca,target=/srv/ca.pem --mount=type=secret,id=pip_conf,target=/srv/pip.conf \
    /installer/image-install.sh /installer/bin/python --target /packages -r /locks/pictures.txt
FROM scratch AS pictures
COPY --from=picture-packages /packages/skimage/data/*.png /packages/skimage/data/*.jpg \
    /packages/sklearn/datasets/images/*.jpg /

# ---- report: the packages of `make report`, for the image's own Python; not part of the image ----
FROM installer AS report-packages
COPY requirements/report.txt /locks/
RUN --mount=type=cache,target=/srv \
    --mount=type=secret,id=ca,target=/srv/ca.pem --mount=type=secret,id=pip_conf,target=/srv/pip.conf \
    /installer/image-install.sh /installer/bin/python --target /packages -r /locks/report.txt
FROM scratch AS report
COPY --from=report-packages /packages /

# ---- source: our own packages, compiled to bytecode by the image's Python ----
FROM base AS source
COPY entrypoint /opt/cluster-trainer/entrypoint
COPY trainer /opt/cluster-trainer/trainer
RUN python3 -m compileall -q /opt/cluster-trainer

# ---- with-r-0, with-r-1: WITH_R selects one; both share the large layer above ----
FROM runtime AS with-r-0

FROM runtime AS with-r-1
#   r-base-core        R without the compilers that r-base brings
#   r-cran-reticulate  runs Python inside R
#   libpython3.*       Python as a library, which reticulate loads, if the base has none
RUN --mount=type=tmpfs,target=/var/lib/apt/lists --mount=type=tmpfs,target=/var/cache/apt \
    packages=(r-base-core r-cran-reticulate); \
    python3 -c 'import ctypes, sysconfig; ctypes.CDLL(sysconfig.get_config_var("INSTSONAME"))' 2>/dev/null || \
        packages+=("$(python3 -c 'import sys; print("libpython%d.%d" % sys.version_info[:2])')"); \
    apt-get update -qq; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"; \
    rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/cache/debconf/*-old
# LANG: the encoding of R and of the Python in it; without it, they use ASCII.
ENV RETICULATE_PYTHON=/opt/venv/bin/python \
    LANG=C.UTF-8

# ---- backend-tensorflow, backend-jax: what KERAS_BACKEND chooses from ----
# DL3006: a stage has no tag.
# hadolint ignore=DL3006
FROM with-r-${WITH_R} AS backend-tensorflow

FROM runtime AS backend-jax
LABEL cluster-trainer.keras-backend="jax"
ENV KERAS_BACKEND=jax

# ---- the image ----
# hadolint ignore=DL3006
FROM backend-${KERAS_BACKEND} AS final
COPY --from=prepared /prepared /opt/cluster-trainer
COPY --from=source /opt/cluster-trainer /opt/cluster-trainer
COPY --from=pip /opt/pip /opt/pip
COPY scripts/status /usr/local/bin/
COPY LICENSE NOTICE /usr/share/doc/cluster-trainer/

ARG ACCELERATOR=gpu
ARG VERSION=0
ARG REVISION=unknown
# cluster-trainer.accelerators: the kind of machines that the image is for, gpu or cpu.
LABEL cluster-trainer.accelerators="${ACCELERATOR}" \
      org.opencontainers.image.title="cluster-trainer" \
      org.opencontainers.image.description="Trains a Keras model on one device, several GPUs or many machines" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# USER and LOGNAME: an id without an entry in /etc/passwd has no name, and getpass would fail.
# TFDS_DATA_DIR: the same folder as TRAINER_DATA_DIR, so that scripts find the prepared data sets.
# CUDA_CACHE_MAXSIZE: newer GPUs compile TensorFlow's kernels at the first start; the default cache is too small.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/home/trainer \
    USER=trainer \
    LOGNAME=trainer \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TF_CPP_MIN_LOG_LEVEL=1 \
    TFDS_DATA_DIR=/data \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    CUDA_CACHE_MAXSIZE=4294967296 \
    CLUSTER_TRAINER_VERSION=${VERSION} \
    CLUSTER_TRAINER_REVISION=${REVISION}
WORKDIR /workspace
USER 1000:1000
# It takes 0.1 s of CPU time. A worker that waits, starts or restarts within its limits is healthy
# (docs/reference/status.md).
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["/usr/local/bin/status"]
# -s: tini reaps orphans without a warning if it is not PID 1, as under Slurm.
ENTRYPOINT ["/usr/bin/tini", "-s", "-g", "--", "/opt/venv/bin/python", "-I", "-m", "entrypoint"]

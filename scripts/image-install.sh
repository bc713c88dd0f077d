#!/bin/sh
# pip, as the Dockerfile's stages use it: only what a lock names, by hash, and exactly as it is in the lock.
#   image-install.sh PYTHON OPTIONS...    installs into PYTHON's environment
# Runs where the Dockerfile has mounted a cache on /srv, with the builder's optional secrets in it: a certificate
# bundle and a pip configuration. They are named in the environment of this process alone.
set -eu
here=$(dirname "$0")
python=$1
shift

export PIP_CACHE_DIR=/srv/pip TMPDIR=/srv PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
if [ -s /srv/ca.pem ]; then export PIP_CERT=/srv/ca.pem SSL_CERT_FILE=/srv/ca.pem; fi
if [ -s /srv/pip.conf ]; then export PIP_CONFIG_FILE=/srv/pip.conf; fi

# The one package without a wheel is built by the installer's setuptools, which PYTHONPATH shows to it.
PYTHONPATH=$(echo "$here"/lib/python3.*/site-packages)
export PYTHONPATH
exec "$here/bin/python" -m pip --python "$python" install --quiet --no-deps --require-hashes --no-build-isolation \
    --no-compile "$@"

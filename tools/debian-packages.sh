#!/bin/bash
# Install the Debian packages that the build and the tests need, when some are missing.
#
# Needed to build: make, a C compiler, the headers of the C library and of Python, venv.
# Used by tests, which skip and say so without them: valgrind, libfaketime.
# Where this is not Debian or not root it installs nothing, and names what it would have installed.
set -euo pipefail

python=${1:-python3}
needed=()
useful=()

have() { command -v "$1" >/dev/null 2>&1; }
python_has() { "$python" -c "$1" >/dev/null 2>&1; }

have gcc || have cc || needed+=(gcc)
have make || needed+=(make)
[ -e /usr/include/stdio.h ] || needed+=(libc6-dev)
have "$python" || needed+=(python3)
python_has 'import ensurepip, venv' || needed+=(python3-venv)
python_has 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' || needed+=(python3-dev)
have flock || needed+=(util-linux)
have valgrind || useful+=(valgrind)
compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || useful+=(libfaketime)

if [ ${#needed[@]} -eq 0 ] && [ ${#useful[@]} -eq 0 ]; then
    exit 0
fi
missing="${needed[*]} ${useful[*]}"
if ! have apt-get || [ "$(id -u)" -ne 0 ]; then
    echo "debian-packages: not root on Debian, so nothing is installed; missing: $missing" >&2
    exit 0
fi

echo "debian-packages: installing $missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || echo "debian-packages: the package lists could not be refreshed" >&2
if [ ${#needed[@]} -gt 0 ]; then
    apt-get install -y -qq --no-install-recommends "${needed[@]}" </dev/null >/dev/null
fi
for package in "${useful[@]}"; do
    apt-get install -y -qq --no-install-recommends "$package" </dev/null >/dev/null ||
        echo "debian-packages: $package could not be installed; tests that use it will skip" >&2
done

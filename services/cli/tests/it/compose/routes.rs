//! What `deploy/proxy/haproxy.cfg` says: which gRPC service goes to which service of the platform.

use footplate_testkit::repository_root;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The package of the API.
const PACKAGE: &str = "/footplate.api.v1.";

/// The proxy's configuration, as a deployment uses it.
pub fn file() -> PathBuf {
    repository_root().join("deploy/proxy/haproxy.cfg")
}

/// Its text.
pub fn text() -> String {
    std::fs::read_to_string(file()).unwrap()
}

/// Service of the platform by gRPC service (`RunService`).
pub fn routes() -> BTreeMap<String, String> {
    let mut routes = BTreeMap::new();
    for line in text().lines().map(str::trim).filter(|line| line.starts_with("use_backend ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["use_backend", backend, "if", "{", "path_beg", path, "}"] = words.as_slice() else { panic!("not understood: {line}") };
        let service = path.strip_prefix(PACKAGE).and_then(|rest| rest.strip_suffix('/')).unwrap_or_else(|| panic!("{line}"));
        assert!(routes.insert(service.to_owned(), (*backend).to_owned()).is_none(), "{service} has two routes");
    }
    routes
}

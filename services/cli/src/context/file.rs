//! The command line's own file, `~/.config/footplate/config.toml`: named contexts, each with an address, a project and a token.

use crate::output::Failure;
use footplate_credentials::write_secret;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

/// One context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedContext {
    /// host:port or a URL.
    pub addr: Option<String>,
    /// The project to work in.
    pub project: Option<String>,
    /// Who calls.
    pub token: Option<String>,
    /// The file of the authorities that alone are trusted, for an https address.
    pub ca: Option<String>,
    /// The data folder of an `up` on this machine.
    pub data: Option<String>,
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextFile {
    /// The context used when none is named.
    pub current: Option<String>,
    /// The contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, NamedContext>,
}

/// Where the file lies: `$XDG_CONFIG_HOME/footplate/config.toml`, else under `~/.config`; nowhere without a home.
pub fn default_path() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(base.join("footplate/config.toml"))
}

impl ContextFile {
    /// Reads the file; one that is not there is empty.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::usage(format!("{} cannot be read: {error}", path.display()))),
        };
        // The message of the parser shows the line, and the line may hold the token.
        toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
            Failure::usage(format!("{}, line {line}: {}", path.display(), error.message()))
        })
    }

    /// The context called `name`, else the current one, else an empty one.
    ///
    /// # Errors
    /// A name that is not in the file.
    pub fn choose(&self, name: Option<&str>) -> Result<NamedContext, Failure> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(NamedContext::default()) };
        self.contexts.get(name).cloned().ok_or_else(|| {
            let known = self.contexts.keys().cloned().collect::<Vec<_>>().join(", ");
            Failure::not_found(format!("no context called {name:?}; known: {}", if known.is_empty() { "none" } else { &known }))
        })
    }

    /// Puts a context into the file at `path`, keeping the others; it becomes the current one when there is none. Only the user may read it.
    ///
    /// # Errors
    /// A file that cannot be read, understood or written.
    pub fn remember(path: &Path, name: &str, context: NamedContext) -> Result<(), Failure> {
        let mut file = Self::read(path)?;
        if file.contexts.get(name) == Some(&context) {
            return Ok(());
        }
        file.contexts.insert(name.to_owned(), context);
        file.current.get_or_insert_with(|| name.to_owned());
        file.write(path)
    }

    /// Writes the file, whole or not at all. Only the user may read it.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::new(crate::output::Exit::Failed, format!("{} cannot be written: {error}", path.display()));
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        write_secret(path, &self.text()).map_err(failed)
    }

    fn text(&self) -> String {
        let quoted = |text: &str| serde_json::Value::String(text.to_owned()).to_string();
        let mut out = String::new();
        if let Some(current) = &self.current {
            out.push_str(&format!("current = {}\n", quoted(current)));
        }
        for (name, context) in &self.contexts {
            out.push_str(&format!("\n[contexts.{}]\n", quoted(name)));
            let of = context;
            let lines = [("addr", &of.addr), ("project", &of.project), ("token", &of.token), ("ca", &of.ca), ("data", &of.data)];
            for (key, value) in lines {
                if let Some(value) = value {
                    out.push_str(&format!("{key} = {}\n", quoted(value)));
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_remembered_context_is_read_back_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("footplate/config.toml");
        let local = NamedContext {
            addr: Some("127.0.0.1:7470".into()),
            token: Some("t\"1".into()),
            ca: Some("/etc/ca.pem".into()),
            data: Some("/srv/a".into()),
            project: None,
        };
        ContextFile::remember(&path, "local", local.clone()).unwrap();
        ContextFile::remember(&path, "lab.a", NamedContext { addr: Some("https://lab".into()), ..NamedContext::default() }).unwrap();
        let file = ContextFile::read(&path).unwrap();
        assert_eq!(file.choose(None).unwrap(), local);
        assert_eq!(file.choose(Some("lab.a")).unwrap().addr.as_deref(), Some("https://lab"));
        assert_eq!(file.choose(Some("nope")).unwrap_err().exit, crate::output::Exit::NotFound);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_broken_file_is_told_without_showing_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "[contexts.a]\ntoken = s3cret\n").unwrap();
        let told = ContextFile::read(&path).unwrap_err().message;
        assert!(told.contains("line 2") && !told.contains("s3cret"), "{told}");
    }
}

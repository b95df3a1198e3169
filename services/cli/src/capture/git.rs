//! Asking git, by plumbing commands only, without being led astray by the user's or the repository's settings.
//!
//! It never writes to the repository: it works on a copy of the index (`GIT_INDEX_FILE`), takes no optional locks, runs no hook, no
//! fsmonitor, no pager and no network; in a repository of another owner it also runs none of its filters.

use super::CaptureError;
use std::{
    ffi::{OsStr, OsString},
    io::Write as _,
    os::unix::{ffi::OsStringExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Settings that no configuration file may override.
const OVERRIDES: [&str; 9] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.untrackedCache=false",
    "core.quotePath=false",
    "color.ui=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "safe.directory=*",
    "core.ignoreStat=false",
];

/// One working tree, and how to ask git about it.
#[derive(Debug)]
pub(super) struct Git {
    /// The top folder of the working tree.
    pub(super) top: PathBuf,
    /// Where the copied index and the private global configuration lie; goes away with this value.
    scratch: tempfile::TempDir,
    /// `-c` settings beyond [`OVERRIDES`].
    settings: Vec<String>,
}

impl Git {
    /// The repository around `folder`; nothing when there is none, or no git on this machine.
    ///
    /// # Errors
    /// A bare repository, or a repository that git cannot read.
    pub(super) fn around(folder: &Path) -> Result<Option<Self>, CaptureError> {
        let scratch = tempfile::Builder::new().prefix("footplate-git-").tempdir().map_err(CaptureError::scratch)?;
        std::fs::write(scratch.path().join("config"), private_config()).map_err(CaptureError::scratch)?;
        let mut git = Self { top: folder.to_owned(), scratch, settings: Vec::new() };
        let asked = git.command(&["rev-parse", "--is-inside-work-tree", "--show-toplevel", "--absolute-git-dir"]).output();
        let answer = match asked {
            Ok(answer) => answer,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CaptureError::Git { command: "rev-parse".to_owned(), message: error.to_string() }),
        };
        if !answer.status.success() {
            let message = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
            if message.contains("not a git repository") {
                return Ok(None);
            }
            if message.contains("must be run in a work tree") {
                return Err(CaptureError::Bare { folder: folder.to_owned() });
            }
            return Err(CaptureError::Git { command: "rev-parse".to_owned(), message });
        }
        let mut lines = answer.stdout.split(|byte| *byte == b'\n');
        if lines.next() != Some(b"true") {
            return Err(CaptureError::Bare { folder: folder.to_owned() });
        }
        let top = lines.next().map(path_of).unwrap_or_default();
        let index = lines.next().map(path_of).unwrap_or_default().join("index");
        git.top = top;
        git.copy_index(&index)?;
        git.distrust_foreign_filters()?;
        Ok(Some(git))
    }

    /// Works on a copy of the index from here on; where there is none, on one read from HEAD, or on an empty one.
    fn copy_index(&self, index: &Path) -> Result<(), CaptureError> {
        match std::fs::copy(index, self.index()) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let tree = if self.head()?.is_some() { "HEAD" } else { "--empty" };
                self.ask(&["read-tree", tree]).map(drop)
            }
            Err(source) => Err(CaptureError::Unreadable { path: index.display().to_string(), source }),
        }
    }

    /// A filter named by a repository of somebody else would run as us: switch each of them off.
    fn distrust_foreign_filters(&mut self) -> Result<(), CaptureError> {
        let owner = std::fs::metadata(&self.top).map(|meta| meta.uid()).unwrap_or_default();
        if owner == rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        let listed = self.command(&["config", "--local", "--name-only", "-z", "--get-regexp", "^filter\\."]).output();
        let names = listed.map(|answer| answer.stdout).unwrap_or_default();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = String::from_utf8_lossy(name).into_owned();
            let value = if name.ends_with(".required") { "false" } else { "" };
            self.settings.push(format!("{name}={value}"));
        }
        Ok(())
    }

    fn index(&self) -> PathBuf {
        self.scratch.path().join("index")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"GIT_") {
                command.env_remove(name);
            }
        }
        command
            .arg("-C")
            .arg(&self.top)
            .args(OVERRIDES.iter().flat_map(|setting| ["-c", setting]))
            .args(self.settings.iter().flat_map(|setting| ["-c", setting.as_str()]))
            .args(arguments)
            .env("GIT_INDEX_FILE", self.index())
            .env("GIT_CONFIG_GLOBAL", self.scratch.path().join("config"))
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command that must succeed, for its output.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<Vec<u8>, CaptureError> {
        let failed = |message: String| CaptureError::Git { command: arguments[0].to_owned(), message };
        let answer = self.command(arguments).output().map_err(|error| failed(error.to_string()))?;
        if answer.status.success() {
            return Ok(answer.stdout);
        }
        Err(failed(String::from_utf8_lossy(&answer.stderr).trim().to_owned()))
    }

    /// Runs a command whose failure means "no such thing"; the first line of its output.
    pub(super) fn line(&self, arguments: &[&str]) -> Option<String> {
        let answer = self.command(arguments).output().ok().filter(|answer| answer.status.success())?;
        let line = answer.stdout.split(|byte| *byte == b'\n').next().unwrap_or_default();
        (!line.is_empty()).then(|| String::from_utf8_lossy(line).into_owned())
    }

    /// Starts a command whose output is read as it comes.
    pub(super) fn stream(&self, arguments: &[&str]) -> Result<Child, CaptureError> {
        let failed = |error: std::io::Error| CaptureError::Git { command: arguments[0].to_owned(), message: error.to_string() };
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)
    }

    /// Runs a command that reads paths, each closed by a zero byte, from its standard input.
    pub(super) fn ask_about(&self, arguments: &[&str], paths: &[u8]) -> Result<Vec<u8>, CaptureError> {
        let failed = |error: std::io::Error| CaptureError::Git { command: arguments[0].to_owned(), message: error.to_string() };
        let mut input = tempfile::tempfile().map_err(CaptureError::scratch)?;
        input.write_all(paths).map_err(CaptureError::scratch)?;
        std::io::Seek::rewind(&mut input).map_err(CaptureError::scratch)?;
        let answer = self.command(arguments).stdin(input).output().map_err(failed)?;
        Ok(answer.stdout)
    }

    /// The commit checked out; nothing before the first one.
    pub(super) fn head(&self) -> Result<Option<String>, CaptureError> {
        Ok(self.line(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"]))
    }
}

/// A global configuration that includes the user's own and trusts every folder: older git takes `safe.directory` from here only.
fn private_config() -> Vec<u8> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| home.as_ref().map(|home| home.join(".config")));
    let own = std::env::var_os("GIT_CONFIG_GLOBAL").map(PathBuf::from);
    let files: Vec<PathBuf> = match own {
        Some(own) => vec![own],
        None => [xdg.map(|xdg| xdg.join("git/config")), home.map(|home| home.join(".gitconfig"))].into_iter().flatten().collect(),
    };
    let mut text = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        text.extend_from_slice(b"[include]\n\tpath = ");
        text.extend_from_slice(&quoted(file.as_os_str()));
        text.push(b'\n');
    }
    text.extend_from_slice(b"[safe]\n\tdirectory = *\n");
    text
}

/// A value of a git configuration file, in quotes.
fn quoted(value: &OsStr) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in value.as_encoded_bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
    out
}

/// A path from bytes that git printed.
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

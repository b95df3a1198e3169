//! What a node joins with: one file that names the platform, the broker and the node's own secrets.

use footplate_credentials::write_secret;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The content of the file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The node's name.
    pub node: String,
    /// Address of the platform.
    pub api: String,
    /// Address of the broker.
    pub nats: String,
    /// The agent's token.
    pub token: String,
    /// The broker's credentials; empty where the broker knows none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub credentials: String,
    /// The authorities in PEM that alone are trusted at the platform's address; empty where these are the node's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub authorities: String,
}

impl Join {
    /// Reads a file.
    ///
    /// # Errors
    /// One that cannot be read or understood; what it says is not told, since it is secret.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        let wrong = |error: toml::de::Error| {
            let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
            format!("{}, line {line}: {}; `footplate node token` makes such a file", path.display(), error.message())
        };
        toml::from_str(&text).map_err(wrong)
    }

    /// The text of a file.
    ///
    /// # Errors
    /// Never for what was read or made here.
    pub fn to_text(&self) -> Result<String, String> {
        let fields = toml::to_string(self).map_err(|error| error.to_string())?;
        Ok(format!("# Footplate: the agent of {} joins with this file. Whoever has it is this node.\n{fields}", self.node))
    }

    /// The settings that it stands for, as `--set` takes them. The broker's credentials are put into the data folder, where the connection reads them.
    ///
    /// # Errors
    /// A data folder that cannot be written.
    pub fn settings(&self, data: &Path) -> Result<Vec<String>, String> {
        let mut settings = vec![
            format!("agent.node={}", self.node),
            format!("agent.api={}", self.api),
            format!("agent.token={}", self.token),
            format!("nats={}", self.nats),
        ];
        let keep = |file: &Path, text: &str| {
            let written = std::fs::create_dir_all(data).and_then(|()| write_secret(file, text));
            written.map_err(|error| format!("{} cannot be written: {error}", file.display()))
        };
        if !self.authorities.is_empty() {
            let file = data.join("platform-ca.pem");
            keep(&file, &self.authorities)?;
            settings.push(format!("agent.ca={}", file.display()));
        }
        if !self.credentials.is_empty() {
            let file = data.join("broker.creds");
            keep(&file, &self.credentials)?;
            settings.push(format!("nats.credentials={}", file.display()));
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_reads_back_and_its_secrets_are_the_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let join = Join {
            node: "gpu-1".to_owned(),
            api: "lab:7450".to_owned(),
            nats: "nats://lab:4222".to_owned(),
            token: "fp_secret".to_owned(),
            credentials: "-----BEGIN NATS USER JWT-----\nx\n".to_owned(),
            authorities: "-----BEGIN CERTIFICATE-----\nx\n".to_owned(),
        };
        let file = folder.path().join("join.toml");
        write_secret(&file, &join.to_text().unwrap()).unwrap();
        assert!(Join::read(&file).unwrap() == join);
        let settings = join.settings(&folder.path().join("data")).unwrap();
        let creds = folder.path().join("data/broker.creds");
        assert!(settings.contains(&format!("agent.ca={}", folder.path().join("data/platform-ca.pem").display())), "{settings:?}");
        assert!(settings.contains(&format!("nats.credentials={}", creds.display())), "{settings:?}");
        for path in [&file, &creds] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&file, "token = 'fp_secret'\nnode = 7\n").unwrap();
        let told = Join::read(&file).err().unwrap();
        assert!(told.contains("line") && !told.contains("fp_secret"), "{told}");
    }
}

//! Signatures: who has a webhook's secret can tell that a delivery is the platform's, and when it was made.
//!
//! The secret of a webhook is derived from the platform's own key, and never stored: whoever reads the ledger or the object store cannot sign.

use footplate_types::{Digest, EventId, ProjectName, WebhookName};
use ring::hmac;
use std::fmt;

/// How secrets begin, so that whoever looks for secrets finds them.
const PREFIX: &str = "fpwh_";

/// The key that secrets are derived from: the same for all trackers of a platform.
#[derive(Clone)]
pub struct WebhookKey(hmac::Key);

impl fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookKey")
    }
}

impl WebhookKey {
    /// The key that a text is: one that nobody can guess.
    pub fn new(text: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()))
    }

    /// The secret of the webhook that the event `id` made.
    pub(crate) fn secret(&self, project: &ProjectName, name: &WebhookName, id: EventId) -> Secret {
        // Neither a project nor a webhook can have a blank in its name, so that no two of them are one text.
        let tag = hmac::sign(&self.0, format!("webhook {project} {name} {id}").as_bytes());
        Secret(format!("{PREFIX}{}", hex(tag.as_ref())))
    }
}

/// What one webhook's deliveries are signed with.
pub(crate) struct Secret(String);

impl Secret {
    /// The secret itself, for the one who made the webhook.
    pub(crate) fn tell(&self) -> String {
        self.0.clone()
    }

    /// What the ledger knows of it.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    /// The header of a body that is sent at a time, in seconds since 1970.
    pub(crate) fn signature(&self, seconds: i64, body: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.0.as_bytes());
        let mut context = hmac::Context::with_key(&key);
        context.update(format!("{seconds}.").as_bytes());
        context.update(body);
        format!("t={seconds},v1={}", hex(context.sign().as_ref()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(key: &str, project: &str, name: &str, id: u8) -> Secret {
        let (project, name) = (ProjectName::parse(project).unwrap(), WebhookName::parse(name).unwrap());
        WebhookKey::new(key).secret(&project, &name, EventId::from_bytes([id; 16]))
    }

    #[test]
    fn every_webhook_has_a_secret_of_its_own_and_always_the_same() {
        let one = secret("k", "vision", "ci", 1);
        assert_eq!(one.tell(), secret("k", "vision", "ci", 1).tell());
        assert!(one.tell().starts_with("fpwh_") && one.tell().len() == 69, "{}", one.tell());
        let others = [("l", "vision", "ci", 1), ("k", "speech", "ci", 1), ("k", "vision", "cd", 1), ("k", "vision", "ci", 2)];
        for (key, project, name, id) in others {
            assert_ne!(one.tell(), secret(key, project, name, id).tell(), "{key} {project} {name} {id}");
        }
        assert_eq!(one.digest(), Digest::of(one.tell().as_bytes()));
        assert!(!format!("{:?}", WebhookKey::new("guessed")).contains("guessed"));
    }

    /// Computed with Python: `hmac.new(b"fpwh_test", b"1700000000.{}", "sha256").hexdigest()`.
    #[test]
    fn a_signature_is_what_another_implementation_computes() {
        let made = Secret("fpwh_test".to_owned()).signature(1_700_000_000, b"{}");
        assert_eq!(made, "t=1700000000,v1=91489198ae5f841ef56ba62c9300a0e2bd17788b98a3d87d6b3edd044d052f29");
    }
}

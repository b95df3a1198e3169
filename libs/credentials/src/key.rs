//! Keys of NATS: ed25519, in the text form that says what each is for.

use crate::jwt::sha256;
use std::fmt;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Vouches for accounts.
    Operator,
    /// Vouches for users.
    Account,
    /// Somebody who connects.
    User,
}

impl KeyKind {
    const fn nkey(self) -> nkeys::KeyPairType {
        match self {
            Self::Operator => nkeys::KeyPairType::Operator,
            Self::Account => nkeys::KeyPairType::Account,
            Self::User => nkeys::KeyPairType::User,
        }
    }

    /// As a person reads it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Account => "account",
            Self::User => "user",
        }
    }
}

/// Why a text is no key. It never holds the text, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is no {kind} key: {reason}")]
pub struct KeyError {
    /// Of what.
    pub what: String,
    /// What was wanted.
    pub kind: &'static str,
    /// Why.
    pub reason: String,
}

/// A key with its secret half. Printing one shows the public half alone.
#[derive(Clone)]
pub struct Key {
    pair: nkeys::KeyPair,
    public: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.public).finish()
    }
}

impl Key {
    /// A new key of the system's entropy.
    pub fn generate(kind: KeyKind) -> Self {
        Self::from_entropy(kind, footplate_clock::entropy())
    }

    /// The key that these bytes make.
    pub fn from_entropy(kind: KeyKind, bytes: [u8; 32]) -> Self {
        let pair = nkeys::KeyPair::new_from_raw(kind.nkey(), bytes).expect("any 32 bytes are a seed");
        let public = pair.public_key();
        Self { pair, public }
    }

    /// Reads a seed; `what` names where it stood.
    ///
    /// # Errors
    /// When it is none, or one of another kind.
    pub fn from_seed(kind: KeyKind, what: &str, seed: &str) -> Result<Self, KeyError> {
        let wrong = |reason: String| KeyError { what: what.to_owned(), kind: kind.as_str(), reason };
        let pair = nkeys::KeyPair::from_seed(seed.trim()).map_err(|error| wrong(error.to_string()))?;
        if pair.key_pair_type() != kind.nkey() {
            return Err(wrong("it is for something else".to_owned()));
        }
        let public = pair.public_key();
        Ok(Self { pair, public })
    }

    /// Checks that a text is the public half of a key.
    ///
    /// # Errors
    /// When it is not, or of another kind.
    pub fn check_public(kind: KeyKind, what: &str, public: &str) -> Result<(), KeyError> {
        let wrong = |reason: String| KeyError { what: what.to_owned(), kind: kind.as_str(), reason };
        let pair = nkeys::KeyPair::from_public_key(public).map_err(|error| wrong(error.to_string()))?;
        if pair.key_pair_type() == kind.nkey() { Ok(()) } else { Err(wrong("it is for something else".to_owned())) }
    }

    /// A key that only the holder of this one can make, always the same for one purpose: its seed is the digest of a signature, and an
    /// ed25519 signature is a function of key and text.
    #[must_use]
    pub fn derive(&self, kind: KeyKind, purpose: &str) -> Self {
        Self::from_entropy(kind, sha256(&self.sign(format!("footplate derives: {purpose}").as_bytes())))
    }

    /// The public half, in text.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// The secret half, in text: for a file that nobody else reads, and nothing else.
    pub fn seed(&self) -> String {
        self.pair.seed().expect("a key of this type has its secret half")
    }

    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).expect("a key of this type has its secret half")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_is_of_one_kind() {
        let key = Key::from_entropy(KeyKind::Account, [7; 32]);
        assert_eq!(key.public(), "ADVEU3DD4KOFECV66VIHWEZOYX4ZKR3WV27L464SIIPOU2IUI3JCZW22");
        let read = Key::from_seed(KeyKind::Account, "the file", &format!("{}\n", key.seed())).unwrap();
        assert_eq!(read.public(), key.public());
        let refused = Key::from_seed(KeyKind::Operator, "the file", &key.seed()).unwrap_err().to_string();
        assert!(refused.contains("the file") && refused.contains("operator") && !refused.contains(&key.seed()), "{refused}");
        assert!(Key::check_public(KeyKind::Account, "x", key.public()).is_ok());
        assert!(Key::check_public(KeyKind::User, "x", key.public()).is_err());
        assert!(!format!("{key:?}").contains(&key.seed()));
    }

    #[test]
    fn a_derived_key_is_the_same_for_one_purpose_and_another_for_the_next() {
        let root = Key::from_entropy(KeyKind::Operator, [1; 32]);
        let derived = |purpose: &str| root.derive(KeyKind::Account, purpose).public().to_owned();
        assert_eq!(derived("project vision"), derived("project vision"));
        assert_ne!(derived("project vision"), derived("project audio"));
        assert_ne!(derived("x"), Key::from_entropy(KeyKind::Operator, [2; 32]).derive(KeyKind::Account, "x").public());
    }
}

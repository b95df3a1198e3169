//! NATS JWTs, version 2: three parts in base64url, signed with ed25519, whose issuer is the public key itself.

use crate::key::Key;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256, Sha512_256};

/// The one header there is.
const HEADER: &str = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;
/// The longest token that is read.
const TOKEN_MAX: usize = 1 << 20;

/// What is signed about a subject, beside its own claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement<'a> {
    /// The public key that it is about.
    pub(crate) subject: &'a str,
    /// Its name, for people.
    pub(crate) name: &'a str,
    /// When it was said, in seconds since 1970.
    pub(crate) issued_at: i64,
    /// When it ends to hold.
    pub(crate) expires_at: Option<i64>,
    /// Of what kind the claims are (`operator`, `account`, `user`, `activation`, `generic`).
    pub(crate) kind: &'static str,
}

/// Signs claims. The same arguments give the same bytes.
pub(crate) fn encode(signer: &Key, statement: &Statement<'_>, claims: Map<String, Value>) -> String {
    let mut body = Map::new();
    if let Some(expires_at) = statement.expires_at {
        body.insert("exp".to_owned(), json!(expires_at));
    }
    body.insert("iat".to_owned(), json!(statement.issued_at));
    body.insert("iss".to_owned(), json!(signer.public()));
    body.insert("name".to_owned(), json!(statement.name));
    body.insert("sub".to_owned(), json!(statement.subject));
    let mut claims = claims;
    claims.insert("type".to_owned(), json!(statement.kind));
    claims.insert("version".to_owned(), json!(2));
    body.insert("nats".to_owned(), Value::Object(claims));
    // A token's id is a digest of all that it says, so that two which say different things never share one.
    let id = data_encoding::BASE32_NOPAD.encode(&Sha512_256::digest(Value::Object(body.clone()).to_string().as_bytes()));
    body.insert("jti".to_owned(), json!(id));
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(Value::Object(body).to_string()));
    let signature = URL_SAFE_NO_PAD.encode(signer.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// What a token says, its signature checked against the issuer that it names. Whether that issuer may say so is the reader's to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The public key that signed.
    pub issuer: String,
    /// The public key that it is about.
    pub subject: String,
    /// The name, for people.
    pub name: String,
    /// When it was said, in seconds since 1970.
    pub issued_at: i64,
    /// When it ends to hold.
    pub expires_at: Option<i64>,
    /// The claims themselves.
    pub claims: Value,
}

/// Why a text is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a NATS JWT: {0}")]
pub struct JwtError(pub &'static str);

/// Reads a token and checks its signature.
///
/// # Errors
/// When it is none, or not signed by the issuer that it names.
pub fn decode(token: &str) -> Result<Decoded, JwtError> {
    if token.len() > TOKEN_MAX {
        return Err(JwtError("too long"));
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(JwtError("not three parts"))?;
    let (header, body) = signed.split_once('.').ok_or(JwtError("not three parts"))?;
    let part = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| JwtError("a part is not base64url"));
    let json = |text: &str| serde_json::from_slice::<Value>(&part(text)?).map_err(|_| JwtError("a part is not JSON"));
    if json(header)?["alg"] != "ed25519-nkey" {
        return Err(JwtError("not signed with ed25519-nkey"));
    }
    let mut body = json(body)?;
    let text = |body: &Value, field: &str| body[field].as_str().unwrap_or_default().to_owned();
    let issuer = text(&body, "iss");
    let verifier = nkeys::KeyPair::from_public_key(&issuer).map_err(|_| JwtError("its issuer is no key"))?;
    verifier.verify(signed.as_bytes(), &part(signature)?).map_err(|_| JwtError("its signature is not its issuer's"))?;
    Ok(Decoded {
        issuer,
        subject: text(&body, "sub"),
        name: text(&body, "name"),
        issued_at: body["iat"].as_i64().ok_or(JwtError("it does not say when it was issued"))?,
        expires_at: body["exp"].as_i64(),
        claims: body["nats"].take(),
    })
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyKind;

    fn token(expires_at: Option<i64>) -> String {
        let signer = Key::from_entropy(KeyKind::Operator, [1; 32]);
        let subject = Key::from_entropy(KeyKind::Account, [2; 32]);
        let statement = Statement { subject: subject.public(), name: "FP", issued_at: 1_750_000_000, expires_at, kind: "account" };
        encode(&signer, &statement, Map::new())
    }

    #[test]
    fn the_same_statement_is_the_same_bytes() {
        assert_eq!(token(None), token(None));
        assert_ne!(token(None), token(Some(1_750_000_060)));
        footplate_testkit::golden("tests/golden/account.jwt", &format!("{}\n", token(None)));
    }

    #[test]
    fn a_token_reads_back_and_a_changed_one_does_not() {
        let token = token(Some(1_750_000_060));
        let read = decode(&token).unwrap();
        assert_eq!((read.name.as_str(), read.issued_at, read.expires_at), ("FP", 1_750_000_000, Some(1_750_000_060)));
        assert_eq!((&read.claims["type"], &read.claims["version"]), (&json!("account"), &json!(2)));
        assert!(read.issuer.starts_with('O') && read.subject.starts_with('A'));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, body) = signed.split_once('.').unwrap();
        let other = String::from_utf8(URL_SAFE_NO_PAD.decode(body).unwrap()).unwrap().replace("\"FP\"", "\"FQ\"");
        let forged = format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(other));
        assert_eq!(decode(&forged), Err(JwtError("its signature is not its issuer's")));
        for broken in ["", "a.b", "a.b.c", &format!("{header}.{body}.AAAA")] {
            assert!(decode(broken).is_err(), "{broken}");
        }
    }
}

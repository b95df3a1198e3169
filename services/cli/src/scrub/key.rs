//! Which keys name a secret.

/// Last words of a key that make it a secret's name.
const SECRET_WORDS: [&str; 11] =
    ["password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "credential", "credentials", "apikey", "authorization"];
/// Words that make `key` a secret's name when they stand before it.
const SECRET_KEYS: [&str; 7] = ["api", "access", "secret", "private", "auth", "encryption", "signing"];
/// Words before `token` that make it a part of a vocabulary, which is no secret.
const VOCABULARY: [&str; 20] = [
    "cls", "pad", "eos", "bos", "sep", "unk", "mask", "image", "audio", "video", "start", "end", "stop", "special", "think", "next",
    "first", "last", "decoder", "prefix",
];

/// Whether a key with this text as its value names a secret. References (`$NAME`, `${NAME}`, `vault:...`), empty texts and vocabulary tokens
/// are none.
pub fn is_secret_key(key: &str, text: &str) -> bool {
    if text.is_empty() || text == super::MASK || is_reference(text) {
        return false;
    }
    let words = words(key);
    let Some(last) = words.last() else { return false };
    let before = words.len().checked_sub(2).map(|at| words[at].as_str());
    if last == "token" && (before.is_some_and(|word| VOCABULARY.contains(&word)) || is_vocabulary(text)) {
        return false;
    }
    SECRET_WORDS.contains(&last.as_str()) || (last == "key" && before.is_some_and(|word| SECRET_KEYS.contains(&word)))
}

/// Whether a text names a place where the secret is, rather than being it.
pub(super) fn is_reference(text: &str) -> bool {
    text.starts_with('$') || ["vault:", "env:", "file:"].iter().any(|scheme| text.starts_with(scheme))
}

fn is_vocabulary(text: &str) -> bool {
    let enclosed = |open: char, close: char| text.starts_with(open) && text.ends_with(close);
    enclosed('<', '>') || enclosed('[', ']')
}

/// The words of a key, in lower case: split at what is neither letter nor digit, and where a capital follows a small letter.
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small_before = false;
    for letter in key.chars() {
        let new_word = !letter.is_alphanumeric() || (letter.is_uppercase() && small_before);
        small_before = letter.is_lowercase() || letter.is_numeric();
        if new_word {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("it begins with one word").extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_in_every_spelling() {
        for key in [
            "api_key",
            "apiKey",
            "API-KEY",
            "HF_TOKEN",
            "wandb.apikey",
            "db_password",
            "aws_secret_access_key",
            "clientSecret",
            "PGPASSWORD_pwd",
        ] {
            assert!(is_secret_key(key, "x1"), "{key}");
        }
    }

    #[test]
    fn names_that_only_look_alike_are_not() {
        for (key, text) in [
            ("tokenizer", "bpe"),
            ("max_tokens_mode", "x"),
            ("monkey", "x"),
            ("key", "x"),
            ("primary_key", "id"),
            ("eos_token", "</s>"),
            ("token", "[MASK]"),
            ("token", "$HF_TOKEN"),
            ("token", ""),
            ("sort_key", "loss"),
            ("secretary", "x"),
        ] {
            assert!(!is_secret_key(key, text), "{key}");
        }
    }
}

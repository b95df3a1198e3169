//! Which texts hold a secret whatever their key: passwords in URLs, and tokens of well-known shapes.

use super::MASK;

/// How a well-known token begins, and how many letters at least follow.
const TOKENS: [(&str, usize); 13] = [
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("github_pat_", 30),
    ("glpat-", 16),
    ("hf_", 20),
    ("sk-", 20),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("eyJhbGciOi", 20),
];

/// The text with every secret masked; nothing when there is none.
pub fn scrub_text(text: &str) -> Option<String> {
    let mut clean = without_passwords(text);
    if let Some(at) = clean.find("-----BEGIN ").filter(|at| clean[*at..].contains("PRIVATE KEY-----")) {
        clean.truncate(at);
        clean.push_str(MASK);
    }
    clean = without_tokens(&clean);
    (clean != text).then_some(clean)
}

/// Masks the password of every `scheme://user:password@host`.
fn without_passwords(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        out.push_str(head);
        let end =
            tail.find(|letter: char| letter == '/' || letter == '?' || letter == '#' || letter.is_whitespace() || "\"'`".contains(letter));
        let (authority, tail) = tail.split_at(end.unwrap_or(tail.len()));
        match authority.rsplit_once('@').map(|(user, host)| (user.split_once(':'), host)) {
            Some((Some((user, password)), host)) if !password.is_empty() && !password.starts_with('$') && password != MASK => {
                out.push_str(&format!("{user}:{MASK}@{host}"));
            }
            _ => out.push_str(authority),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

fn without_tokens(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let at_border = !text[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        let token = TOKENS.iter().find(|(head, _)| at_border && rest.starts_with(head));
        let length = token.map_or(0, |(head, least)| {
            let body =
                rest[head.len()..].bytes().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')).count();
            if body >= *least { head.len() + body } else { 0 }
        });
        if length > 0 {
            out.push_str(MASK);
            at += length;
        } else {
            let letter = rest.chars().next().unwrap_or_default();
            out.push(letter);
            at += letter.len_utf8();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_go_and_the_rest_of_the_url_stays() {
        for (text, clean) in [
            ("postgres://u:pw@h/x", Some("postgres://u:***@h/x")),
            ("see redis://:pw@h:1 and http://h/a@b", Some("see redis://:***@h:1 and http://h/a@b")),
            ("https://h/x", None),
            ("postgres://u:$PW@h/x", None),
            ("ssh://git@h/x", None),
        ] {
            assert_eq!(scrub_text(text).as_deref(), clean, "{text}");
        }
    }

    #[test]
    fn well_known_tokens_go_wherever_they_stand() {
        let token = format!("hf_{}", "a1".repeat(15));
        assert_eq!(scrub_text(&format!("login {token}; 推荐")).as_deref(), Some("login ***; 推荐"));
        assert_eq!(scrub_text("ask-me sk-short half_life"), None);
        assert_eq!(scrub_text("-----BEGIN RSA PRIVATE KEY-----\nabc").as_deref(), Some("***"));
    }
}

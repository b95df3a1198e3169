//! Secrets on command lines: `--token=abc`, `--token abc`, `PASSWORD=x program`.

use super::{MASK, is_secret_key, value::scrub_text};

/// Masks what is secret in a list of program and arguments; the places masked are given back as positions.
pub fn scrub_argv(words: &[String]) -> (Vec<String>, Vec<usize>) {
    let mut clean = Vec::with_capacity(words.len());
    let mut masked = Vec::new();
    let mut after: Option<&str> = None;
    for (at, word) in words.iter().enumerate() {
        let (shown, next) = scrub_word(word, after);
        if shown != *word {
            masked.push(at);
        }
        clean.push(shown);
        after = next;
    }
    (clean, masked)
}

/// Masks what is secret in a line for a shell; nothing when there is none. Blanks and quotes stay as they are.
pub fn scrub_line(line: &str) -> Option<String> {
    let mut clean = String::with_capacity(line.len());
    let mut after: Option<&str> = None;
    for (blank, word) in words_of(line) {
        if blank {
            clean.push_str(word);
            continue;
        }
        let (shown, next) = scrub_word(word, after);
        clean.push_str(&shown);
        after = next;
    }
    let clean = scrub_text(&clean).unwrap_or(clean);
    (clean != line).then_some(clean)
}

/// One word, given the option before it; the masked word, and the option whose value comes next.
fn scrub_word<'a>(word: &'a str, after: Option<&str>) -> (String, Option<&'a str>) {
    if let Some((name, value)) = word.split_once('=') {
        let bare = name.trim_start_matches('-');
        if is_secret_key(bare, unquoted(value)) {
            return (format!("{name}={}", masked_in_quotes(value)), None);
        }
        return (scrub_text(word).unwrap_or_else(|| word.to_owned()), None);
    }
    if let Some(option) = after
        && !word.starts_with('-')
        && is_secret_key(option, unquoted(word))
    {
        return (masked_in_quotes(word), None);
    }
    let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).filter(|name| !name.is_empty());
    (scrub_text(word).unwrap_or_else(|| word.to_owned()), option)
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

fn masked_in_quotes(value: &str) -> String {
    let quote = value.chars().next().filter(|letter| matches!(letter, '"' | '\'') && value.len() > 1 && value.ends_with(*letter));
    quote.map_or_else(|| MASK.to_owned(), |quote| format!("{quote}{MASK}{quote}"))
}

/// Splits a line into words and the blanks between them; a quoted text with blanks is one word.
fn words_of(line: &str) -> Vec<(bool, &str)> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut blank = true;
    let mut quote = None;
    for (at, letter) in line.char_indices() {
        let is_blank = quote.is_none() && (letter.is_whitespace() || matches!(letter, ';' | '&' | '|'));
        if is_blank != blank {
            if at > begin {
                parts.push((blank, &line[begin..at]));
            }
            begin = at;
            blank = is_blank;
        }
        match quote {
            Some(open) if open == letter => quote = None,
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            _ => {}
        }
    }
    parts.push((blank, &line[begin..]));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> (Vec<String>, Vec<usize>) {
        scrub_argv(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn secret_options_lose_their_values_in_both_spellings() {
        let (clean, masked) = argv(&["python", "t.py", "--token=abc", "--api-key", "k1", "--num-tokens", "4", "--db=postgres://u:pw@h"]);
        assert_eq!(clean, ["python", "t.py", "--token=***", "--api-key", "***", "--num-tokens", "4", "--db=postgres://u:***@h"]);
        assert_eq!(masked, [2, 4, 7]);
    }

    #[test]
    fn a_shell_line_keeps_its_shape() {
        let line = "PASSWORD='a b' python t.py  --token \"abc\" --lr=0.1 --eos-token='</s>' && echo $TOKEN";
        assert_eq!(scrub_line(line).unwrap(), "PASSWORD='***' python t.py  --token \"***\" --lr=0.1 --eos-token='</s>' && echo $TOKEN");
        assert_eq!(scrub_line("python train.py --token $HF_TOKEN --steps=3"), None);
    }

    #[test]
    fn a_flag_without_a_value_does_not_swallow_the_next_flag() {
        assert_eq!(argv(&["x", "--token", "--verbose"]).1, Vec::<usize>::new());
    }
}

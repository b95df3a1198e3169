//! Patterns: `%` is any text, `_` any one character, `\` takes the next character as it is.

enum Piece {
    Any,
    One,
    Char(char),
}

/// Whether `text` matches `pattern` from end to end.
pub(super) fn like(text: &str, pattern: &str, any_case: bool) -> bool {
    let fold = |text: &str| if any_case { text.to_lowercase() } else { text.to_owned() };
    let text: Vec<char> = fold(text).chars().collect();
    let pieces = pieces(&fold(pattern));
    matches(&text, &pieces)
}

fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        pieces.push(match c {
            '%' => Piece::Any,
            '_' => Piece::One,
            '\\' => Piece::Char(chars.next().unwrap_or('\\')),
            c => Piece::Char(c),
        });
    }
    pieces
}

/// Greedy with one step back to the last `%`: linear in practice, never exponential.
fn matches(text: &[char], pieces: &[Piece]) -> bool {
    let (mut at, mut piece) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while at < text.len() {
        match pieces.get(piece) {
            Some(Piece::Any) => {
                back = Some((piece, at));
                piece += 1;
            }
            Some(Piece::One) => {
                at += 1;
                piece += 1;
            }
            Some(Piece::Char(c)) if *c == text[at] => {
                at += 1;
                piece += 1;
            }
            Some(Piece::Char(_)) | None => match back {
                Some((any, from)) => {
                    piece = any + 1;
                    at = from + 1;
                    back = Some((any, from + 1));
                }
                None => return false,
            },
        }
    }
    pieces[piece..].iter().all(|piece| matches!(piece, Piece::Any))
}

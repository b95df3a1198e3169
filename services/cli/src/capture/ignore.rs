//! Ignore rules in the syntax of `.gitignore`, for `.footplateignore`, the default excludes, the list of secret names and `source.allow`.
//!
//! Pure text matching: it never touches the file system.

/// A list of rules; the last one that matches decides.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    /// The folder the rule was written in, with a closing `/`; empty for the root.
    base: Vec<u8>,
    negated: bool,
    folders_only: bool,
    /// Whether the pattern holds a `/` before its end, so that it is matched against the whole path below `base`.
    anchored: bool,
    pattern: Vec<u8>,
}

impl Rules {
    /// Reads the lines of one ignore file that lies in `base` (relative to the root, `""` for the root itself).
    pub(super) fn parse(base: &[u8], text: &[u8]) -> Self {
        let mut base = base.to_vec();
        if !base.is_empty() && base.last() != Some(&b'/') {
            base.push(b'/');
        }
        let rules = text.split(|byte| *byte == b'\n').filter_map(|line| Rule::parse(&base, line)).collect();
        Self { rules }
    }

    /// Adds rules that win over those already here.
    pub(super) fn extend(&mut self, later: Self) {
        self.rules.extend(later.rules);
    }

    /// What the last matching rule says of this one path, its folders not considered: ignored, kept, or nothing.
    pub(super) fn says(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        self.rules.iter().rev().find(|rule| rule.matches(path, is_folder)).map(|rule| !rule.negated)
    }

    /// Whether the file at `path` is ignored, by itself or because one of its folders is.
    pub(super) fn ignores(&self, path: &[u8]) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        let folders = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        for folder in folders {
            if self.says(folder, true) == Some(true) {
                return true;
            }
        }
        self.says(path, false) == Some(true)
    }
}

impl Rule {
    fn parse(base: &[u8], line: &[u8]) -> Option<Self> {
        let mut line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b"#") {
            return None;
        }
        while line.ends_with(b" ") && !line.ends_with(b"\\ ") {
            line = &line[..line.len() - 1];
        }
        let negated = line.starts_with(b"!");
        let line = if negated { &line[1..] } else { line };
        let folders_only = line.ends_with(b"/");
        let line = if folders_only { &line[..line.len() - 1] } else { line };
        let anchored = line.contains(&b'/');
        let pattern = line.strip_prefix(b"/").unwrap_or(line);
        if pattern.is_empty() {
            return None;
        }
        Some(Self { base: base.to_vec(), negated, folders_only, anchored, pattern: pattern.to_vec() })
    }

    fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        if self.folders_only && !is_folder {
            return false;
        }
        let Some(below) = path.strip_prefix(self.base.as_slice()) else { return false };
        if self.anchored {
            return glob(&self.pattern, below);
        }
        let name = below.rsplit(|byte| *byte == b'/').next().unwrap_or(below);
        glob(&self.pattern, name)
    }
}

/// Whether `text` matches a shell pattern: `*` and `?` stop at `/`, `**` crosses it, `[a-z]`, `[!a]` and `\x` as usual.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    match first {
        b'*' if rest.first() == Some(&b'*') => match &rest[1..] {
            [] => true,
            [b'/', after @ ..] => glob(after, text) || starts(text).any(|below| glob(after, below)),
            after => glob(after, text) || (1..=text.len()).any(|at| glob(after, &text[at..])),
        },
        b'*' => {
            let reach = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
            (0..=reach).any(|at| glob(rest, &text[at..]))
        }
        b'?' => text.first().is_some_and(|byte| *byte != b'/') && glob(rest, &text[1..]),
        b'[' => match (class(rest), text.split_first()) {
            (Some((set, rest)), Some((&byte, below))) => byte != b'/' && set.holds(byte) && glob(rest, below),
            (Some(_), None) => false,
            (None, _) => text.first() == Some(&b'[') && glob(rest, &text[1..]),
        },
        b'\\' if !rest.is_empty() => text.first() == rest.first() && glob(&rest[1..], &text[1..]),
        byte => text.first() == Some(&byte) && glob(rest, &text[1..]),
    }
}

/// What stands behind each `/` of `text`.
fn starts(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &text[at + 1..])
}

struct Class {
    negated: bool,
    ranges: Vec<(u8, u8)>,
}

impl Class {
    fn holds(&self, byte: u8) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&byte)) != self.negated
    }
}

/// Reads a class up to its `]`; nothing when it is never closed.
fn class(pattern: &[u8]) -> Option<(Class, &[u8])> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    let mut ranges = Vec::new();
    let begin = at;
    loop {
        let byte = *pattern.get(at)?;
        if byte == b']' && at > begin {
            return Some((Class { negated, ranges }, &pattern[at + 1..]));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                ranges.push((byte, high));
                at += 3;
            }
            _ => {
                ranges.push((byte, byte));
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(lines: &str, path: &str) -> bool {
        Rules::parse(b"", lines.as_bytes()).ignores(path.as_bytes())
    }

    #[test]
    fn a_pattern_without_a_slash_matches_at_every_depth() {
        assert!(ignored("*.pyc", "a/b/c.pyc"));
        assert!(ignored("cache", "a/cache/x"));
        assert!(!ignored("*.pyc", "a/b/c.py"));
    }

    #[test]
    fn a_pattern_with_a_slash_is_anchored() {
        assert!(ignored("/out", "out/x"));
        assert!(!ignored("/out", "a/out/x"));
        assert!(ignored("tmp/cache/", "tmp/cache/a/b"));
        assert!(!ignored("tmp/cache/", "tmp/cache"));
    }

    #[test]
    fn two_stars_cross_folders() {
        assert!(ignored("**/deep.txt", "deep.txt"));
        assert!(ignored("**/deep.txt", "a/b/deep.txt"));
        assert!(ignored("a/**/z", "a/z"));
        assert!(ignored("a/**/z", "a/b/c/z"));
        assert!(ignored("a/**", "a/b"));
        assert!(!ignored("a/*", "b/a/c"));
    }

    #[test]
    fn a_later_exception_wins_unless_a_folder_is_out() {
        assert!(!ignored("*.log\n!keep.log", "keep.log"));
        assert!(ignored("logs/\n!logs/keep.log", "logs/keep.log"));
    }

    #[test]
    fn classes_escapes_comments_and_blanks_are_understood() {
        assert!(ignored("x[0-9].bin", "x7.bin"));
        assert!(!ignored("x[!0-9].bin", "x7.bin"));
        assert!(ignored("\\#a", "#a"));
        assert!(!ignored("# a", "# a"));
        assert!(ignored("a  ", "a"));
        assert!(ignored("[a", "[a"));
    }

    #[test]
    fn a_rule_of_a_folder_holds_below_it_only() {
        let rules = Rules::parse(b"sub", b"*.tmp");
        assert!(rules.ignores(b"sub/a.tmp"));
        assert!(!rules.ignores(b"a.tmp"));
    }
}

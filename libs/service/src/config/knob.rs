//! A knob: one key, its type, its default and its reason.

use std::marker::PhantomData;

use super::Value;

/// A test of a value, and what passes it.
type Check<T> = (fn(&T) -> bool, &'static str);

/// One setting of a component: a typed constant.
#[derive(Debug)]
pub struct Knob<T> {
    key: &'static str,
    default: &'static str,
    help: &'static str,
    secret: bool,
    check: Option<Check<T>>,
    type_: PhantomData<fn() -> T>,
}

impl<T> Knob<T> {
    /// A knob under a dotted lower-case `key`, with its `default` as text and the reason it exists.
    pub const fn new(key: &'static str, default: &'static str, help: &'static str) -> Self {
        Self { key, default, help, secret: false, check: None, type_: PhantomData }
    }

    /// Never shown: masked wherever the configuration is printed.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Accepts only values for which `check` holds; `allowed` says which those are, as a sentence part.
    #[must_use]
    pub const fn only(mut self, check: fn(&T) -> bool, allowed: &'static str) -> Self {
        self.check = Some((check, allowed));
        self
    }
}

impl<T: Value> Knob<T> {
    pub(crate) fn read(&self, text: &str) -> Result<T, String> {
        let Some(value) = T::parse(text) else { return Err(self.not_allowed(text, T::ALLOWED)) };
        match self.check {
            Some((check, allowed)) if !check(&value) => Err(self.not_allowed(text, allowed)),
            _ => Ok(value),
        }
    }

    fn not_allowed(&self, text: &str, allowed: &str) -> String {
        if self.secret { format!("not allowed; allowed: {allowed}") } else { format!("{text:?} is not allowed; allowed: {allowed}") }
    }
}

/// A knob without its type, for the table of all knobs.
pub trait AnyKnob: Sync {
    /// The dotted key.
    fn key(&self) -> &'static str;
    /// The default, as text.
    fn default(&self) -> &'static str;
    /// The reason it exists.
    fn help(&self) -> &'static str;
    /// Whether its value must not be shown.
    fn is_secret(&self) -> bool;
    /// What its type accepts.
    fn allowed(&self) -> &'static str;
    /// Whether `text` is acceptable.
    ///
    /// # Errors
    /// What is wrong with it and what would be right.
    fn accepts(&self, text: &str) -> Result<(), String>;
    /// The environment variable that sets it: `FOOTPLATE_` and the key in upper case, dots and dashes as `_`.
    fn variable(&self) -> String {
        format!("FOOTPLATE_{}", self.key().to_uppercase().replace(['.', '-'], "_"))
    }
}

impl<T: Value> AnyKnob for Knob<T> {
    fn key(&self) -> &'static str {
        self.key
    }

    fn default(&self) -> &'static str {
        self.default
    }

    fn help(&self) -> &'static str {
        self.help
    }

    fn is_secret(&self) -> bool {
        self.secret
    }

    fn allowed(&self) -> &'static str {
        self.check.map_or(T::ALLOWED, |(_, allowed)| allowed)
    }

    fn accepts(&self, text: &str) -> Result<(), String> {
        self.read(text).map(|_| ())
    }
}

/// The table of `knobs` as Markdown: key, default, variable, allowed values, reason.
pub fn knob_table(knobs: &[&dyn AnyKnob]) -> String {
    let mut rows: Vec<&&dyn AnyKnob> = knobs.iter().collect();
    rows.sort_by_key(|knob| knob.key());
    let mut table = String::from("| key | default | variable | allowed | why it exists |\n|---|---|---|---|---|\n");
    for knob in rows {
        let default = if knob.default().is_empty() { "(none)".to_owned() } else { format!("`{}`", knob.default()) };
        table.push_str(&format!("| `{}` | {default} | `{}` | {} | {} |\n", knob.key(), knob.variable(), knob.allowed(), knob.help()));
    }
    table
}

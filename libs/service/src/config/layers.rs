//! The layers and what becomes of them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::{AnyKnob, ConfigError, ConfigErrors, Knob, Value};

/// How alike (Jaro-Winkler, 0 to 1) a key must be to a known one to be named as what was perhaps meant.
const ALIKE: f64 = 0.85;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Variable(name) => write!(f, "variable {name}"),
            Origin::Flag(key) => write!(f, "flag {key}"),
        }
    }
}

/// The layers to read, weakest first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<PathBuf>,
    texts: Vec<(PathBuf, String)>,
    variables: Vec<(String, String)>,
    not_ours: &'static [&'static str],
    flags: Vec<(String, String)>,
}

impl Sources {
    /// Adds a TOML file that must exist; a later file wins over an earlier one.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Adds the process's environment: variables that begin with `FOOTPLATE_`.
    #[must_use]
    pub fn environment(self) -> Self {
        let shown = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        self.variables(std::env::vars_os().map(|(name, value)| (shown(name), shown(value))))
    }

    /// Adds variables given as pairs; those that do not begin with `FOOTPLATE_` are passed over.
    #[must_use]
    pub fn variables(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.variables.extend(variables.into_iter().filter(|(name, _)| name.starts_with("FOOTPLATE_")));
        self
    }

    /// Says which variables belong to somebody else: they are no slips, however like a knob's they are.
    #[must_use]
    pub fn not_ours(mut self, names: &'static [&'static str]) -> Self {
        self.not_ours = names;
        self
    }

    /// Adds a flag: `key` is the dotted key that it sets.
    #[must_use]
    pub fn flag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.flags.push((key.into(), value.into()));
        self
    }

    /// Reads all layers against the table of `knobs`.
    ///
    /// A variable that is no knob is refused only when it is almost one: the same prefix serves clients and training scripts too, and
    /// cluster software sets variables of its own under a service's name.
    ///
    /// # Errors
    /// Everything that is wrong in any layer: unreadable files, unknown keys (with the nearest known one), values that are not allowed.
    pub fn load(self, knobs: &[&dyn AnyKnob]) -> Result<Config, ConfigErrors> {
        let mut reader = Reader::new(knobs);
        for path in &self.files {
            match std::fs::read_to_string(path) {
                Ok(text) => reader.text(path, &text),
                Err(error) => reader.refuse(Origin::File(path.clone()), "", format!("cannot be read: {error}")),
            }
        }
        self.texts.iter().for_each(|(path, text)| reader.text(path, text));
        let ours = self.variables.iter().filter(|(name, _)| !self.not_ours.contains(&name.as_str()));
        ours.for_each(|(name, value)| reader.variable(name, value));
        self.flags.iter().for_each(|(key, value)| reader.set(Origin::Flag(key.clone()), key, value.clone()));
        reader.finish()
    }

    /// Adds the text of a TOML file that is not on disk; `name` stands for it in errors.
    #[must_use]
    pub fn text(mut self, name: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        self.texts.push((name.into(), text.into()));
        self
    }
}

/// The configuration in effect: every knob has a value that its type accepts.
#[derive(Clone, Debug)]
pub struct Config {
    settings: BTreeMap<&'static str, Setting>,
}

#[derive(Clone, Debug)]
struct Setting {
    text: String,
    origin: Origin,
    secret: bool,
}

impl Config {
    /// The value of a knob.
    ///
    /// # Panics
    /// When the knob was not in the table given to [`Sources::load`]: then nobody could ever have set it.
    pub fn get<T: Value>(&self, knob: &Knob<T>) -> T {
        let setting = self.settings.get(knob.key()).unwrap_or_else(|| panic!("the knob {} is in no table of knobs", knob.key()));
        knob.read(&setting.text).expect("every value was checked when it was loaded, by the knob of its key")
    }

    /// Where the value of a knob came from.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.settings.get(key).map(|setting| &setting.origin)
    }

    /// The effective configuration as TOML, each line with its origin; secrets are masked.
    pub fn show(&self) -> String {
        let mut shown = String::new();
        for (key, setting) in &self.settings {
            let text = if setting.secret && !setting.text.is_empty() { "***" } else { setting.text.as_str() };
            shown.push_str(&format!("{key} = {} # {}\n", quoted(text), setting.origin));
        }
        shown
    }
}

struct Reader<'a> {
    knobs: BTreeMap<&'static str, &'a dyn AnyKnob>,
    settings: BTreeMap<&'static str, Setting>,
    errors: Vec<ConfigError>,
}

impl<'a> Reader<'a> {
    fn new(knobs: &[&'a dyn AnyKnob]) -> Self {
        let knobs: BTreeMap<_, _> = knobs.iter().map(|knob| (knob.key(), *knob)).collect();
        let mut reader = Self { settings: BTreeMap::new(), errors: Vec::new(), knobs };
        for (key, knob) in reader.knobs.clone() {
            reader.set(Origin::Default, key, knob.default().to_owned());
        }
        reader
    }

    fn text(&mut self, path: &std::path::Path, text: &str) {
        let origin = Origin::File(path.to_owned());
        match text.parse::<toml::Table>() {
            Ok(table) => self.table(&origin, "", &table),
            Err(error) => self.refuse(origin, "", error.to_string().trim_end().replace('\n', "\n    ")),
        }
    }

    fn table(&mut self, origin: &Origin, prefix: &str, table: &toml::Table) {
        for (name, value) in table {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                // A key may be a knob and the beginning of others (`nats`, `nats.user`): no knob is a table.
                toml::Value::Table(inner) => self.table(origin, &key, inner),
                value => match plain(value) {
                    Some(text) => self.set(origin.clone(), &key, text),
                    None => self.refuse(origin.clone(), &key, "must be one value or a list of plain values".to_owned()),
                },
            }
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        let known = self.knobs.values().map(|knob| (knob.variable(), knob.key()));
        let by_variable: BTreeMap<String, &'static str> = known.collect();
        let origin = Origin::Variable(name.to_owned());
        if let Some(key) = by_variable.get(name) {
            self.set(origin, key, value.to_owned());
            return;
        }
        // One or two letters off a knob of ours is a slip; anything else belongs to somebody else.
        if let Some(near) = by_variable.keys().find(|known| strsim::damerau_levenshtein(known, name) <= 2) {
            self.refuse(origin, "", format!("is no variable of this program; did you mean {near}?"));
        }
    }

    fn set(&mut self, origin: Origin, key: &str, text: String) {
        let Some(knob) = self.knobs.get(key).copied() else {
            let problem = match nearest(key, self.knobs.keys().copied()) {
                Some(near) => format!("no such key; did you mean {near}?"),
                None => "no such key".to_owned(),
            };
            self.refuse(origin, key, problem);
            return;
        };
        match knob.accepts(&text) {
            Ok(()) => {
                self.settings.insert(knob.key(), Setting { text, origin, secret: knob.is_secret() });
            }
            Err(problem) => self.refuse(origin, key, problem),
        }
    }

    fn refuse(&mut self, origin: Origin, key: &str, problem: String) {
        self.errors.push(ConfigError { origin, key: key.to_owned(), problem });
    }

    fn finish(self) -> Result<Config, ConfigErrors> {
        if self.errors.is_empty() { Ok(Config { settings: self.settings }) } else { Err(ConfigErrors(self.errors)) }
    }
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::Array(items) => items.iter().map(single).collect::<Option<Vec<_>>>().map(|items| items.join(",")),
        value => single(value),
    }
}

fn single(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Datetime(_) | toml::Value::Table(_) | toml::Value::Array(_) => None,
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(letter))),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn nearest<'k>(key: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let scored = known.map(|known| (strsim::jaro_winkler(key, known), known)).filter(|(score, _)| *score >= ALIKE);
    scored.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{ByteCount, knob_table};
    use super::*;

    const GRACE: Knob<Duration> = Knob::new("drain.grace", "10s", "how long a drain may take");
    const LIMIT: Knob<ByteCount> = Knob::new("upload.limit", "64MiB", "the largest upload").only(|size| size.0 > 0, "more than 0B");
    const TOKEN: Knob<String> = Knob::new("broker.token", "", "what to show the broker").secret();
    const PEERS: Knob<Vec<String>> = Knob::new("broker.peers", "", "other brokers");
    const KNOBS: &[&dyn AnyKnob] = &[&GRACE, &LIMIT, &TOKEN, &PEERS];

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_later_layer_wins_and_says_where_it_came_from() {
        let file = "[drain]\ngrace = \"1s\"\n[upload]\nlimit = \"1MiB\"\n[broker]\npeers = [\"a:1\", \"b:2\"]\n";
        let sources = Sources::default().text("f.toml", file).variables(variables(&[("FOOTPLATE_DRAIN_GRACE", "2s"), ("PATH", "/bin")]));
        let config = sources.flag("drain.grace", "3s").load(KNOBS).unwrap();
        assert_eq!(config.get(&GRACE), Duration::from_secs(3));
        assert_eq!(config.origin("drain.grace"), Some(&Origin::Flag("drain.grace".to_owned())));
        assert_eq!(config.get(&LIMIT), ByteCount(1 << 20));
        assert_eq!(config.get(&PEERS), ["a:1", "b:2"]);
        assert_eq!(config.origin("broker.token"), Some(&Origin::Default));
    }

    #[test]
    fn every_error_is_told_at_once_and_an_unknown_key_names_the_nearest() {
        let file = "drain = { grase = \"1s\" }\nupload.limit = \"0B\"\nbroker.peers = [[1]]\nzzz = 1\n";
        let sources = Sources::default().text("f.toml", file).file("/nonexistent/x.toml");
        let sources =
            sources.variables(variables(&[("FOOTPLATE_DRAIN_GRACE", "soon"), ("FOOTPLATE_DRAIN_GRACES", "1s"), ("FOOTPLATE_PORT", "x")]));
        let errors = sources.flag("upload.limt", "1MiB").load(KNOBS).unwrap_err();
        let told = errors.to_string();
        assert_eq!(errors.0.len(), 8, "{told}");
        for part in [
            "/nonexistent/x.toml: cannot be read",
            "drain.grase: no such key; did you mean drain.grace?",
            "upload.limit: \"0B\" is not allowed; allowed: more than 0B",
            "broker.peers: must be one value",
            "zzz: no such key",
            "variable FOOTPLATE_DRAIN_GRACE: drain.grace: \"soon\" is not allowed; allowed: a time with its unit",
            "variable FOOTPLATE_DRAIN_GRACES: is no variable of this program; did you mean FOOTPLATE_DRAIN_GRACE?",
            "flag upload.limt: upload.limt: no such key; did you mean upload.limit?",
        ] {
            assert!(told.contains(part), "{part} is not in:\n{told}");
        }
    }

    #[test]
    fn a_variable_of_somebody_elses_is_no_slip() {
        let given = || Sources::default().variables(variables(&[("FOOTPLATE_BROKER_TOKENS", "x")]));
        assert!(given().load(KNOBS).unwrap_err().to_string().contains("did you mean FOOTPLATE_BROKER_TOKEN?"));
        given().not_ours(&["FOOTPLATE_BROKER_TOKENS"]).load(KNOBS).unwrap();
    }

    #[test]
    fn a_table_may_be_called_like_a_knob() {
        const BROKER: Knob<String> = Knob::new("broker", "", "where it is");
        let sources = Sources::default().text("f.toml", "[broker]\ntoken = \"hunter2\"\n").flag("broker", "here");
        let config = sources.load(&[&BROKER, &TOKEN]).unwrap();
        assert_eq!((config.get(&BROKER).as_str(), config.get(&TOKEN).as_str()), ("here", "hunter2"));
    }

    #[test]
    fn a_broken_file_is_told_with_its_line() {
        let errors = Sources::default().text("f.toml", "a = 1\nb = = 2\n").load(KNOBS).unwrap_err();
        assert!(errors.to_string().contains("line 2"), "{errors}");
    }

    #[test]
    fn a_secret_is_shown_nowhere() {
        let config = Sources::default().flag("broker.token", "hunter2").load(KNOBS).unwrap();
        let shown = config.show();
        assert!(!shown.contains("hunter2") && shown.contains("broker.token = \"***\" # flag broker.token"), "{shown}");
        let errors = Sources::default().flag("secret.number", "hunter2").load(&[&Knob::<u16>::new("secret.number", "1", "").secret()]);
        assert!(!errors.unwrap_err().to_string().contains("hunter2"));
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        let sources = Sources::default().flag("upload.limit", "1MiB").flag("broker.peers", "a\"b\\c\u{1}推");
        let config = sources.load(KNOBS).unwrap();
        let again = Sources::default().text("shown.toml", config.show()).load(KNOBS).unwrap();
        assert_eq!(again.get(&LIMIT), config.get(&LIMIT));
        assert_eq!(again.get(&PEERS), config.get(&PEERS));
    }

    #[test]
    fn the_table_lists_every_knob_once() {
        let table = knob_table(KNOBS);
        assert_eq!(table.lines().count(), 2 + KNOBS.len());
        assert!(table.contains("| `drain.grace` | `10s` | `FOOTPLATE_DRAIN_GRACE` |"), "{table}");
    }

    #[test]
    #[should_panic(expected = "no table of knobs")]
    fn a_knob_that_nobody_can_set_is_a_mistake() {
        Sources::default().load(&[&GRACE]).unwrap().get(&LIMIT);
    }
}

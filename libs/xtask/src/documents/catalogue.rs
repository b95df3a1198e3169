//! `docs/events/README.md`: every event for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use footplate_events::{Aggregate, CatalogueEntry, PAYLOAD_MAX, Subject, catalogue};
use serde_json::Value;

use super::schema::{Field, fields, first_line, kind};

/// The page.
pub(crate) fn page() -> String {
    let entries = catalogue();
    let mut page = introduction();
    page.push_str("\n## All events\n\n| type | written by | read by |\n|---|---|---|\n");
    for entry in &entries {
        let (name, owner) = (entry.event_type.to_string(), entry.event_type.aggregate.owner());
        writeln!(page, "| [`{name}`](#{}) | {owner} | {} |", anchor(&name), entry.readers).expect("a string takes any text");
    }
    for aggregate in Aggregate::ALL {
        page.push_str(&section(aggregate, &entries));
    }
    page.push_str(&shared_types(&entries));
    page
}

fn introduction() -> String {
    let prefix = Subject::PREFIX;
    format!(
        "# Events\n\n\
         Every fact of the platform is one message in the stream `LEDGER`, in one total order. The payload is JSON; the envelope is CloudEvents 1.0 \
         in binary mode: the headers below. An event is at most {PAYLOAD_MAX} bytes: longer texts are documents in the object store, named by their \
         digest. Within a version fields are only added; a changed meaning is a new type. [asyncapi.yaml](asyncapi.yaml) says the same for tools.\n\n\
         The subject is `{prefix}.<project>.<aggregate>.<id>`; the platform's own aggregates (queues, nodes, terms) stand under the project `_`. Read \
         along with `nats sub '{prefix}.>'` or `footplate event tail`.\n\n\
         | header | holds |\n|---|---|\n\
         | `ce-id`, `Nats-Msg-Id` | the event's id |\n\
         | `ce-type` | the type, as below |\n\
         | `ce-source` | the service and instance that wrote it |\n\
         | `ce-subject` | the aggregate and its id |\n\
         | `ce-time` | the writer's clock, RFC 3339 |\n\
         | `ce-actor` | who caused it: an opaque principal id |\n\
         | `ce-correlationid` | what it belongs to: one id from a submit to the seal |\n\
         | `ce-causationid` | the event that caused it |\n\
         | `traceparent` | its W3C trace context |\n"
    )
}

fn section(aggregate: Aggregate, entries: &[CatalogueEntry]) -> String {
    let own: Vec<&CatalogueEntry> = entries.iter().filter(|entry| entry.event_type.aggregate == aggregate).collect();
    let writer = match (aggregate, aggregate.client_written()) {
        (Aggregate::Job, _) => "the submission is appended by any instance, all else by the leader alone, under its term",
        (_, true) => "appended by any instance, expecting the subject's last sequence",
        (_, false) => "appended by the leader alone, under its term",
    };
    let mut text = format!(
        "\n## {name}\n\nSubject `{prefix}.<project>.{name}.<id>`; owned by {owner}; {writer}.\n",
        name = aggregate.as_str(),
        prefix = Subject::PREFIX,
        owner = aggregate.owner(),
    );
    for entry in own {
        let schema = entry.schema.as_value();
        writeln!(text, "\n### {}\n\n{}\n\nRead by {}.\n", entry.event_type, entry.when.trim(), entry.readers)
            .expect("a string takes any text");
        text.push_str(&table(&fields(schema)));
    }
    text
}

fn table(fields: &[Field]) -> String {
    if fields.is_empty() {
        return "No fields.\n".to_owned();
    }
    let mut table = String::from("| field | type | needed | meaning |\n|---|---|---|---|\n");
    for Field { name, kind, needed, meaning } in fields {
        let needed = if *needed { "yes" } else { "" };
        writeln!(table, "| `{name}` | {kind} | {needed} | {meaning} |").expect("a string takes any text");
    }
    table
}

/// The types that payloads share, each once.
fn shared_types(entries: &[CatalogueEntry]) -> String {
    let mut shared: BTreeMap<&String, &Value> = BTreeMap::new();
    for entry in entries {
        shared.extend(entry.schema.as_value()["$defs"].as_object().into_iter().flatten());
    }
    let mut text = String::from("\n## Types that events share\n");
    for (name, schema) in shared {
        let meaning = first_line(schema["description"].as_str().unwrap_or_default());
        write!(text, "\n### {name}\n\n{meaning}\n\n").expect("a string takes any text");
        let fields = fields(schema);
        text.push_str(&if fields.is_empty() { plain(schema) } else { table(&fields) });
    }
    text
}

/// A type without fields: one of several words or shapes, or text of a pattern.
fn plain(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words.iter().map(|word| format!("`{}`", word.as_str().unwrap_or_default())).collect();
        return format!("One of {}.\n", words.join(", "));
    }
    let Some(choices) = schema["oneOf"].as_array() else { return format!("A {}.\n", kind(schema)) };
    let mut text = String::from("One of:\n\n");
    for choice in choices {
        let inner: Vec<String> = fields(choice).iter().map(|field| format!("`{}`: {}", field.name, field.kind)).collect();
        let word = choice["const"].as_str().map(|word| format!("`{word}`")).or_else(|| words(choice));
        let shape = word.unwrap_or_else(|| if inner.is_empty() { kind(choice) } else { format!("{{ {} }}", inner.join(", ")) });
        let meaning = first_line(choice["description"].as_str().unwrap_or_default());
        let end = if meaning.is_empty() { String::new() } else { format!(": {meaning}") };
        writeln!(text, "- {shape}{end}").expect("a string takes any text");
    }
    text
}

fn words(choice: &Value) -> Option<String> {
    let words: Vec<String> = choice["enum"].as_array()?.iter().map(|word| format!("`{}`", word.as_str().unwrap_or_default())).collect();
    Some(words.join(", "))
}

/// The anchor that renderers give a heading.
fn anchor(heading: &str) -> String {
    heading.chars().filter(|letter| letter.is_alphanumeric() || *letter == '-').collect()
}

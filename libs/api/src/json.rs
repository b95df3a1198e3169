//! Messages as proto3 JSON, by the descriptors: the form of the JSON door and of `-o json`.
//!
//! Field names are lowerCamelCase on the way out; both spellings are read. 64-bit integers are strings, NaN and infinities are the strings
//! `"NaN"`, `"Infinity"` and `"-Infinity"`, bytes are base64. Unknown fields are refused, by their path and with the nearest known name.

use prost::{Message, Name};
use prost_reflect::{
    DeserializeOptions, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, SerializeOptions,
};
use serde_json::{Map, Value};

use crate::descriptors;
use crate::refusal::{Refusal, reason};

/// How alike (Jaro-Winkler, 0 to 1) a name must be to a known one to be offered in its place.
const ALIKE: f64 = 0.8;
/// How deep messages may nest in a request; deeper ones are refused before anything recurses through them.
const DEEPEST: usize = 32;

/// Fields that are written at their default, too: a value that was measured is told, also when it is 0.
const ALWAYS: [(&str, &[&str]); 2] =
    [("footplate.api.v1.Point", &["step", "value"]), ("footplate.types.v1.LatestValue", &["step", "value"])];

/// A message as JSON; fields at their default are left out, but for measured values.
///
/// # Panics
/// Never for messages of this crate: the descriptors are made together with the code.
pub fn to_value<M: Message + Name>(message: &M) -> Value {
    let full_name = M::full_name();
    let descriptor = descriptors::pool().get_message_by_name(&full_name).expect("code and descriptors are made from the same protos");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("a message decodes as what it is");
    write(&dynamic).expect("a decoded message has a JSON form")
}

/// A message from JSON.
///
/// # Errors
/// What does not fit, by its path.
///
/// # Panics
/// Never for messages of this crate: the descriptors are made together with the code.
pub fn from_value<M: Message + Name + Default>(value: &Value) -> Result<M, Refusal> {
    let full_name = M::full_name();
    let descriptor = descriptors::pool().get_message_by_name(&full_name).expect("code and descriptors are made from the same protos");
    let dynamic = read(&descriptor, value)?;
    Ok(dynamic.transcode_to().expect("a message decodes as what it is"))
}

pub(crate) fn write(message: &DynamicMessage) -> Result<Value, serde_json::Error> {
    let mut value = message.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())?;
    tell_measured(&message.descriptor(), &mut value)?;
    Ok(value)
}

/// Puts the fields of [`ALWAYS`] in where they were left out.
fn tell_measured(descriptor: &MessageDescriptor, value: &mut Value) -> Result<(), serde_json::Error> {
    let Value::Object(entries) = value else { return Ok(()) };
    if is_well_known(descriptor) {
        return Ok(());
    }
    if let Some((_, fields)) = ALWAYS.iter().find(|(name, _)| *name == descriptor.full_name()) {
        for field in fields.iter().filter_map(|field| descriptor.get_field_by_name(field)) {
            let zero = if field.kind() == Kind::Double { Value::from(0.0) } else { Value::from("0") };
            entries.entry(field.json_name()).or_insert(zero);
        }
    }
    for (name, value) in entries.iter_mut() {
        let Some(field) = field_named(descriptor, name) else { continue };
        let (kind, values) = match (field.kind(), value) {
            (Kind::Message(of), Value::Object(entries)) if field.is_map() => match of.map_entry_value_field().kind() {
                Kind::Message(of) => (of, entries.values_mut().collect::<Vec<_>>()),
                _ => continue,
            },
            (Kind::Message(of), Value::Array(items)) => (of, items.iter_mut().collect()),
            (Kind::Message(of), value) => (of, vec![value]),
            _ => continue,
        };
        values.into_iter().try_for_each(|value| tell_measured(&kind, value))?;
    }
    Ok(())
}

pub(crate) fn read(descriptor: &MessageDescriptor, value: &Value) -> Result<DynamicMessage, Refusal> {
    if depth(value) > DEEPEST {
        return Err(Refusal::new(&reason::MALFORMED_REQUEST, format!("the body nests deeper than {DEEPEST} levels")));
    }
    if let Some(refusal) = unknown_field(descriptor, value, "") {
        return Err(refusal);
    }
    parse(descriptor, value.clone()).map_err(|error| {
        let (field, blamed, problem) = blame(descriptor, value, "").unwrap_or_else(|| (String::new(), value.clone(), error.to_string()));
        let told = if field.is_empty() { problem.clone() } else { format!("{field}: {problem}") };
        let mut refusal = Refusal { next: None, ..Refusal::new(&reason::INVALID_FIELD, told) };
        if !field.is_empty() {
            refusal = refusal.field(field).value(shown(&blamed));
        }
        refusal
    })
}

fn parse(descriptor: &MessageDescriptor, value: Value) -> Result<DynamicMessage, serde_json::Error> {
    DynamicMessage::deserialize_with_options(descriptor.clone(), value, &DeserializeOptions::new())
}

/// The first field that the message does not have.
fn unknown_field(descriptor: &MessageDescriptor, value: &Value, path: &str) -> Option<Refusal> {
    let Value::Object(entries) = value else { return None };
    if is_well_known(descriptor) {
        return None;
    }
    entries.iter().find_map(|(name, value)| match field_named(descriptor, name) {
        None => Some(no_such_field(descriptor, &join(path, name), name)),
        Some(field) => {
            messages_in(&field, value, &join(path, name)).into_iter().find_map(|(of, value, path)| unknown_field(&of, value, &path))
        }
    })
}

fn no_such_field(descriptor: &MessageDescriptor, path: &str, name: &str) -> Refusal {
    let known: Vec<String> = descriptor.fields().map(|field| field.name().to_owned()).collect();
    let near = nearest(name, known.iter().map(String::as_str));
    let hint = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    let refusal = Refusal::new(&reason::UNKNOWN_FIELD, format!("{path}: {} has no such field{hint}", descriptor.name()));
    Refusal { next: None, ..refusal.field(path).allowed(known.join(", ")) }
}

/// The deepest field that does not fit even alone, its value, and what is wrong with it.
fn blame(descriptor: &MessageDescriptor, value: &Value, path: &str) -> Option<(String, Value, String)> {
    let Value::Object(entries) = value else { return None };
    entries.iter().find_map(|(name, value)| {
        let alone = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        let error = parse(descriptor, alone).err()?;
        let path = join(path, name);
        let field = field_named(descriptor, name)?;
        let deeper = messages_in(&field, value, &path).into_iter().find_map(|(of, value, path)| blame(&of, value, &path));
        Some(deeper.unwrap_or_else(|| (path, value.clone(), told(&field, &error))))
    })
}

fn told(field: &FieldDescriptor, error: &serde_json::Error) -> String {
    match field.kind() {
        Kind::Enum(of) => format!("{error}; allowed: {}", names(&of)),
        _ => error.to_string(),
    }
}

fn names(of: &EnumDescriptor) -> String {
    of.values().map(|value| value.name().to_owned()).collect::<Vec<_>>().join(", ")
}

/// The messages inside a field's value, each with its type and path.
fn messages_in<'v>(field: &FieldDescriptor, value: &'v Value, path: &str) -> Vec<(MessageDescriptor, &'v Value, String)> {
    let kind = if field.is_map() {
        let Kind::Message(entry) = field.kind() else { return Vec::new() };
        entry.map_entry_value_field().kind()
    } else {
        field.kind()
    };
    let Kind::Message(of) = kind else { return Vec::new() };
    match value {
        Value::Object(entries) if field.is_map() => entries.iter().map(|(key, value)| (of.clone(), value, join(path, key))).collect(),
        Value::Array(items) if field.is_list() => {
            items.iter().zip(0..).map(|(value, n)| (of.clone(), value, format!("{path}[{n}]"))).collect()
        }
        value => vec![(of, value, path.to_owned())],
    }
}

fn field_named(descriptor: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    descriptor.get_field_by_json_name(name).or_else(|| descriptor.get_field_by_name(name))
}

fn is_well_known(descriptor: &MessageDescriptor) -> bool {
    descriptor.package_name() == "google.protobuf"
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn shown(value: &Value) -> String {
    const LONGEST: usize = 80;
    let text = value.to_string();
    if text.chars().count() <= LONGEST { text } else { format!("{}...", text.chars().take(LONGEST).collect::<String>()) }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(entries) => 1 + entries.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The known name that was perhaps meant.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let scored = known.map(|known| (strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase()), known));
    let alike = scored.filter(|(score, _)| *score >= ALIKE);
    alike.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::v1::{GetHistoryResponse, GetRunRequest, Point, SubmitJobRequest};

    fn refused<M: Message + Name + Default>(value: Value) -> Refusal {
        match from_value::<M>(&value) {
            Err(refusal) => refusal,
            Ok(_) => panic!("{value} was accepted"),
        }
    }

    #[test]
    fn numbers_that_json_has_no_form_for_go_both_ways_as_text() {
        let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1, -0.0];
        let points = values.map(|value| Point { step: i64::MAX, value, ..Point::default() });
        let message = GetHistoryResponse { points: points.to_vec(), ..GetHistoryResponse::default() };
        let value = to_value(&message);
        assert_eq!(value["points"][0]["value"], json!("NaN"));
        assert_eq!(value["points"][1]["value"], json!("Infinity"));
        assert_eq!(value["points"][2]["value"], json!("-Infinity"));
        assert_eq!(value["points"][3]["step"], json!("9223372036854775807"));
        let again: GetHistoryResponse = from_value(&value).unwrap();
        assert!(again.points[0].value.is_nan());
        assert_eq!(again.points[1..], message.points[1..]);
    }

    #[test]
    fn a_measured_zero_is_told_and_other_defaults_are_left_out() {
        let message = GetHistoryResponse { points: vec![Point::default()], ..GetHistoryResponse::default() };
        assert_eq!(to_value(&message), json!({"points": [{"step": "0", "value": 0.0}]}));
        let latest = crate::types::LatestValue { name: "loss".to_owned(), ..Default::default() };
        let answer =
            crate::v1::GetRunResponse { run: Some(crate::types::Run { latest: vec![latest], ..Default::default() }), ..Default::default() };
        assert_eq!(to_value(&answer), json!({"run": {"latest": [{"name": "loss", "step": "0", "value": 0.0}]}}));
    }

    #[test]
    fn both_spellings_of_a_field_are_read() {
        let one: GetRunRequest = from_value(&json!({"runId": "a", "atLeast": 7})).unwrap();
        let other: GetRunRequest = from_value(&json!({"run_id": "a", "at_least": "7"})).unwrap();
        assert_eq!((one.run_id.as_str(), one.at_least), ("a", 7));
        assert_eq!(one, other);
    }

    #[test]
    fn an_unknown_field_is_refused_by_its_path_with_the_nearest_name() {
        let refusal = refused::<SubmitJobRequest>(json!({"spec": {"resources": {"perNode": {"gpsu": 8}}}}));
        assert_eq!((refusal.reason, refusal.field.as_deref()), ("UNKNOWN_FIELD", Some("spec.resources.perNode.gpsu")));
        assert!(refusal.message.ends_with("did you mean gpus?"), "{}", refusal.message);
        let in_list = refused::<SubmitJobRequest>(json!({"spec": {"inputs": [{"name": "a"}, {"nmae": "b"}]}}));
        assert_eq!(in_list.field.as_deref(), Some("spec.inputs[1].nmae"));
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_by_its_path() {
        let refusal = refused::<SubmitJobRequest>(json!({"spec": {"name": "a", "resources": {"perNode": {"gpus": "many"}}}}));
        assert_eq!((refusal.reason, refusal.field.as_deref()), ("INVALID_FIELD", Some("spec.resources.perNode.gpus")));
        assert_eq!(refusal.value.as_deref(), Some("\"many\""));
        let refusal = refused::<SubmitJobRequest>(json!({"spec": {"launcher": "LAUNCHER_SLURM"}}));
        assert!(refusal.message.contains("LAUNCHER_TORCHRUN"), "{}", refusal.message);
        let refusal = refused::<SubmitJobRequest>(json!([1]));
        assert_eq!((refusal.reason, refusal.field), ("INVALID_FIELD", None));
    }

    #[test]
    fn a_body_that_nests_without_end_is_refused() {
        let mut value = json!({});
        for _ in 0..100 {
            value = json!({"spec": value});
        }
        assert_eq!(refused::<SubmitJobRequest>(value).reason, "MALFORMED_REQUEST");
    }
}

//! The lines of the local socket, read and checked. Pure: a line in, what it says or why it is refused out.

use footplate_events::facts::{ParamValue, TEXT_MAX};
use footplate_series::Point;
use footplate_types::{ArtifactPath, AttemptNumber, MetricName, ParamKey, Rank, RunId, SessionId};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf};

/// The version spoken here.
pub(crate) const VERSION: u64 = 1;
/// Points of one `metrics` op.
pub(crate) const POINTS_MOST: usize = 1_000;
/// Bytes of JSON of one param's value.
const VALUE_BYTES_MOST: usize = 128 << 10;
/// Characters of one tag's value; the tracker takes no more, and what is answered here must not be refused there.
const TAG_MAX: usize = 8_000;
/// Bytes of JSON of a checkpoint's metadata.
const METADATA_BYTES_MOST: usize = 64 << 10;

/// Who a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) run: RunId,
    pub(crate) attempt: AttemptNumber,
    pub(crate) rank: Rank,
    pub(crate) session: SessionId,
}

/// A code and a message for the person at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("INVALID_ARGUMENT", message)
    }
}

/// What an op records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Metrics(Vec<(MetricName, Point)>),
    Params(BTreeMap<ParamKey, ParamValue>),
    Tags(BTreeMap<ParamKey, String>),
    Note(String),
    Conclusion(String),
    Artifact { path: PathBuf, name: ArtifactPath },
    Checkpoint { path: PathBuf, step: Option<i64>, metadata: String },
    Finish { finished: bool },
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    LatestCheckpoint,
    Stop,
    Unknown(String),
}

/// One line after the hello.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Incoming {
    /// An op with its number; refused when it cannot be taken in.
    Op { n: u64, op: Result<Op, Fault> },
    /// A question with its id.
    Question { id: i64, question: Question },
    /// Neither: the connection is closed.
    Malformed(String),
}

fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("the line is not a JSON object".to_owned()),
        Err(error) => Err(format!("the line is not JSON: {error}")),
    }
}

/// Reads the first line of a connection.
pub(crate) fn hello(line: &[u8]) -> Result<Hello, Fault> {
    let malformed = |message: String| Fault::new("MALFORMED", message);
    let object = object(line).map_err(malformed)?;
    if object.get("op").and_then(Value::as_str) != Some("hello") {
        return Err(malformed("the first line is not a hello".to_owned()));
    }
    if object.get("v").and_then(Value::as_u64) != Some(VERSION) {
        let given = object.get("v").cloned().unwrap_or_default();
        return Err(Fault::new("VERSION_UNSUPPORTED", format!("version {given} is not spoken here; {VERSION} is")));
    }
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let number = |field: &str| {
        let given = object.get(field).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        given.ok_or_else(|| malformed(format!("{field} is not a whole number from 0")))
    };
    Ok(Hello {
        run: RunId::parse(text("run")).map_err(|error| malformed(error.to_string()))?,
        attempt: AttemptNumber(number("attempt")?),
        rank: Rank(number("rank")?),
        session: SessionId::parse(text("session")).map_err(|error| malformed(error.to_string()))?,
    })
}

/// Reads any later line.
pub(crate) fn incoming(line: &[u8]) -> Incoming {
    let object = match object(line) {
        Ok(object) => object,
        Err(message) => return Incoming::Malformed(message),
    };
    let name = object.get("op").and_then(Value::as_str).unwrap_or_default();
    if let Some(id) = object.get("id").and_then(Value::as_i64) {
        let question = match name {
            "latest_checkpoint" => Question::LatestCheckpoint,
            "stop?" => Question::Stop,
            other => Question::Unknown(other.to_owned()),
        };
        return Incoming::Question { id, question };
    }
    match object.get("n").and_then(Value::as_u64) {
        Some(n) if n > 0 => Incoming::Op { n, op: op(name, &object) },
        _ => Incoming::Malformed("neither n (1, 2, 3, ...) nor id".to_owned()),
    }
}

fn op(name: &str, object: &Map<String, Value>) -> Result<Op, Fault> {
    match name {
        "metrics" => metrics(object),
        "params" => params(object),
        "tags" => tags(object),
        "note" => note(object),
        "artifact" => {
            let name = ArtifactPath::parse(text(object, "name")?).map_err(|error| Fault::invalid(error.of("name").to_string()))?;
            Ok(Op::Artifact { path: path(object)?, name })
        }
        "checkpoint" => checkpoint(object),
        "finish" => match text(object, "status")? {
            "finished" => Ok(Op::Finish { finished: true }),
            "failed" => Ok(Op::Finish { finished: false }),
            other => Err(Fault::invalid(format!("status: {other:?} is not allowed; allowed: finished, failed"))),
        },
        other => Err(Fault::new("UNKNOWN_OP", format!("this agent does not know the op {other:?}"))),
    }
}

fn text<'a>(object: &'a Map<String, Value>, field: &str) -> Result<&'a str, Fault> {
    object.get(field).and_then(Value::as_str).ok_or_else(|| Fault::invalid(format!("{field} is not a text")))
}

fn path(object: &Map<String, Value>) -> Result<PathBuf, Fault> {
    let given = PathBuf::from(text(object, "path")?);
    if given.is_absolute() { Ok(given) } else { Err(Fault::invalid(format!("path: {} is not absolute", given.display()))) }
}

fn metrics(object: &Map<String, Value>) -> Result<Op, Fault> {
    let points = object.get("points").and_then(Value::as_array).ok_or_else(|| Fault::invalid("points is not a list"))?;
    if points.is_empty() || points.len() > POINTS_MOST {
        return Err(Fault::invalid(format!("points: {} of them; allowed: 1 to {POINTS_MOST}", points.len())));
    }
    points.iter().enumerate().map(|(at, one)| point(at, one)).collect::<Result<_, _>>().map(Op::Metrics)
}

fn point(at: usize, given: &Value) -> Result<(MetricName, Point), Fault> {
    let fault = |field: &str, value: &Value, allowed: &str| {
        let shown: String = value.to_string().chars().take(80).collect();
        Fault::invalid(format!("points[{at}].{field}: {shown} is not allowed; allowed: {allowed}"))
    };
    let Some([name, step, time, value]) = given.as_array().map(Vec::as_slice) else {
        return Err(Fault::invalid(format!("points[{at}] is not a list of name, step, time, value")));
    };
    let named = MetricName::parse(name.as_str().unwrap_or_default());
    let name = named.map_err(|error| Fault::invalid(error.of(format!("points[{at}].name")).to_string()))?;
    let step = step.as_i64().ok_or_else(|| fault("step", step, "a whole 64-bit number, not a text and not a fraction"))?;
    let time_ms = time.as_i64().ok_or_else(|| fault("time", time, "whole milliseconds since 1970"))?;
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let value = number.ok_or_else(|| fault("value", value, "a number, \"NaN\", \"Infinity\" or \"-Infinity\""))?;
    Ok((name, Point { step, time_ms, value }))
}

fn key(field: &str, text: &str) -> Result<ParamKey, Fault> {
    ParamKey::parse(text).map_err(|error| Fault::invalid(error.of(field).to_string()))
}

fn params(object: &Map<String, Value>) -> Result<Op, Fault> {
    let given = object.get("params").and_then(Value::as_object).ok_or_else(|| Fault::invalid("params is not an object"))?;
    let mut params = BTreeMap::new();
    for (name, value) in given {
        let bytes = value.to_string().len();
        if bytes > VALUE_BYTES_MOST {
            return Err(Fault::invalid(format!("params.{name}: {bytes} bytes; allowed: {VALUE_BYTES_MOST}")));
        }
        let value = serde_json::from_value(value.clone()).map_err(|error| Fault::invalid(format!("params.{name}: {error}")))?;
        params.insert(key("params", name)?, value);
    }
    Ok(Op::Params(params))
}

fn tags(object: &Map<String, Value>) -> Result<Op, Fault> {
    let given = object.get("set").and_then(Value::as_object).ok_or_else(|| Fault::invalid("set is not an object"))?;
    let mut tags = BTreeMap::new();
    for (name, value) in given {
        let text = value.as_str().ok_or_else(|| Fault::invalid(format!("set.{name} is not a text")))?;
        let length = text.chars().count();
        if length > TAG_MAX {
            return Err(Fault::invalid(format!("set.{name}: {length} characters; allowed: {TAG_MAX}")));
        }
        tags.insert(key("set", name)?, text.to_owned());
    }
    Ok(Op::Tags(tags))
}

fn note(object: &Map<String, Value>) -> Result<Op, Fault> {
    let (field, of): (&str, fn(String) -> Op) = match (object.get("note"), object.get("conclusion")) {
        (Some(_), None) => ("note", Op::Note),
        (None, Some(_)) => ("conclusion", Op::Conclusion),
        _ => return Err(Fault::invalid("exactly one of note and conclusion is allowed")),
    };
    let given = text(object, field)?;
    let length = given.chars().count();
    if length > TEXT_MAX {
        return Err(Fault::invalid(format!("{field}: {length} characters; allowed: {TEXT_MAX}; log a longer one as an artifact")));
    }
    Ok(of(given.to_owned()))
}

fn checkpoint(object: &Map<String, Value>) -> Result<Op, Fault> {
    let step = match object.get("step") {
        None | Some(Value::Null) => None,
        Some(given) => Some(given.as_i64().ok_or_else(|| Fault::invalid(format!("step: {given} is not a whole 64-bit number or null")))?),
    };
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => String::new(),
        Some(Value::Object(given)) if given.is_empty() => String::new(),
        Some(given @ Value::Object(_)) => given.to_string(),
        Some(given) => return Err(Fault::invalid(format!("metadata: {given} is not an object"))),
    };
    if metadata.len() > METADATA_BYTES_MOST {
        return Err(Fault::invalid(format!("metadata: {} bytes; allowed: {METADATA_BYTES_MOST}", metadata.len())));
    }
    Ok(Op::Checkpoint { path: path(object)?, step, metadata })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(line: &str) -> Fault {
        match incoming(line.as_bytes()) {
            Incoming::Op { op: Err(fault), .. } => fault,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn taken(line: &str) -> Op {
        match incoming(line.as_bytes()) {
            Incoming::Op { op: Ok(op), .. } => op,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_point_keeps_its_bits_and_a_bad_one_refuses_the_whole_op_by_name() {
        let Op::Metrics(points) = taken(r#"{"op":"metrics","n":1,"points":[["val/acc",-3,1700000000123,"NaN"],["推荐",9,0,0.1]]}"#)
        else {
            panic!("not metrics")
        };
        assert!(points[0].1.value.is_nan());
        assert_eq!((points[1].0.as_str(), points[1].1.value), ("推荐", 0.1));
        for (bad, told) in [
            (r#"["a",50.5,0,1]"#, "points[1].step"),
            (r#"["a","50",0,1]"#, "points[1].step"),
            (r#"["a",50.0,0,1]"#, "points[1].step"),
            (r#"["a",1,0,true]"#, "points[1].value"),
            (r#"["a",1,0,[1]]"#, "points[1].value"),
            (r#"["a ",1,0,1]"#, "points[1].name"),
            (r#"["a",1,0]"#, "points[1]"),
        ] {
            let fault = refused(&format!(r#"{{"op":"metrics","n":1,"points":[["a",1,0,1],{bad}]}}"#));
            assert_eq!(fault.code, "INVALID_ARGUMENT");
            assert!(fault.message.contains(told), "{}", fault.message);
        }
    }

    #[test]
    fn params_keep_their_types() {
        let Op::Params(params) = taken(r#"{"op":"params","n":2,"params":{"a":3,"b":3.0,"c":[64,null],"d":{"e":false},"f":"3"}}"#) else {
            panic!("not params")
        };
        let of = |name: &str| params[&ParamKey::parse(name).unwrap()].clone();
        assert_eq!((of("a"), of("b"), of("f")), (ParamValue::Int(3), ParamValue::Float(3.0), ParamValue::Text("3".to_owned())));
        assert_eq!(of("c"), ParamValue::List(vec![ParamValue::Int(64), ParamValue::Null(())]));
    }

    #[test]
    fn a_tag_is_as_long_as_the_tracker_takes_it_counted_in_characters() {
        let tag = |length: usize| format!(r#"{{"op":"tags","n":1,"set":{{"team":"{}"}}}}"#, "推".repeat(length));
        assert!(matches!(taken(&tag(8_000)), Op::Tags(tags) if tags.len() == 1));
        let fault = refused(&tag(8_001));
        assert_eq!(fault.code, "INVALID_ARGUMENT");
        assert!(fault.message.contains("set.team: 8001 characters; allowed: 8000"), "{}", fault.message);
    }

    #[test]
    fn paths_and_names_that_lead_elsewhere_are_refused() {
        for name in ["../x", "/x", "a//b", "a/./b", ""] {
            assert_eq!(refused(&format!(r#"{{"op":"artifact","n":1,"path":"/x","name":"{name}"}}"#)).code, "INVALID_ARGUMENT", "{name}");
        }
        assert_eq!(refused(r#"{"op":"artifact","n":1,"path":"x","name":"x"}"#).code, "INVALID_ARGUMENT");
        assert_eq!(refused(r#"{"op":"teleport","n":1}"#).code, "UNKNOWN_OP");
    }

    #[test]
    fn what_is_no_line_of_the_protocol_is_malformed() {
        for line in
            ["", "[]", "{", r#"{"op":"metrics"}"#, r#"{"op":"metrics","n":0}"#, "{\"op\":\"metrics\",\"n\":1,\"points\":[[\"a\",1,0,NaN]]}"]
        {
            assert!(matches!(incoming(line.as_bytes()), Incoming::Malformed(_)), "{line}");
        }
    }

    #[test]
    fn a_hello_of_another_version_or_shape_is_told_apart() {
        let good = format!(r#"{{"v":1,"op":"hello","run":"{0}","attempt":1,"rank":0,"session":"{0}","new":1}}"#, "ab".repeat(16));
        assert!(hello(good.as_bytes()).is_ok());
        assert_eq!(hello(good.replace("\"v\":1", "\"v\":2").as_bytes()).unwrap_err().code, "VERSION_UNSUPPORTED");
        assert_eq!(hello(good.replace("\"rank\":0", "\"rank\":-1").as_bytes()).unwrap_err().code, "MALFORMED");
        assert_eq!(hello(b"GET / HTTP/1.1").unwrap_err().code, "MALFORMED");
    }
}

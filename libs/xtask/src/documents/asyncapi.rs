//! `docs/events/asyncapi.yaml`: every event for tools, in AsyncAPI 3. JetStream's own notions stand under `x-jetstream`: the NATS binding
//! knows none of them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use footplate_events::{Aggregate, CatalogueEntry, PAYLOAD_MAX, Subject, catalogue};
use serde_json::{Map, Value, json};

use super::schema::hoist;

/// The document.
pub(crate) fn document() -> Result<String> {
    let entries = catalogue();
    let mut schemas = BTreeMap::new();
    let mut messages = Map::new();
    for entry in &entries {
        let name = entry.event_type.to_string();
        messages.insert(name, message(entry, &mut schemas)?);
    }
    let document = json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Footplate events",
            "version": "1",
            "description": "Every fact of the platform, in one total order. Within v1 fields are only added; a changed meaning is a new type.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"broker": {"host": "localhost:4222", "protocol": "nats", "description": "nats-server with JetStream"}},
        "channels": by_aggregate(|aggregate| channel(aggregate, &entries)),
        "operations": by_aggregate(operation),
        "components": {
            "messages": messages,
            "messageTraits": {"cloudEvent": {"headers": {"$ref": "#/components/schemas/CloudEventHeaders"}}},
            "schemas": with_headers(schemas),
        },
    });
    let yaml = serde_yaml_ng::to_string(&document).context("the document has no YAML form")?;
    Ok(format!("# Made by `cargo xtask generate`; change the table in the code instead.\n{yaml}"))
}

fn by_aggregate(make: impl Fn(Aggregate) -> Value) -> Map<String, Value> {
    Aggregate::ALL.into_iter().map(|aggregate| (aggregate.as_str().to_owned(), make(aggregate))).collect()
}

fn channel(aggregate: Aggregate, entries: &[CatalogueEntry]) -> Value {
    let own = entries.iter().map(|entry| entry.event_type).filter(|event_type| event_type.aggregate == aggregate);
    let messages: Map<String, Value> = own.map(|one| (one.to_string(), json!({"$ref": format!("#/components/messages/{one}")}))).collect();
    json!({
        "address": format!("{}.{{project}}.{}.{{id}}", Subject::PREFIX, aggregate.as_str()),
        "messages": messages,
        "parameters": {
            "project": {"description": "the project, or _ for the platform's own"},
            "id": {"description": "the aggregate's id"},
        },
        "x-jetstream": {
            "stream": "LEDGER",
            "retention": "limits",
            "discard": "new",
            "storage": "file",
            "expects": if aggregate.client_written() { "the subject's last sequence" } else { "the leader's term" },
        },
    })
}

fn operation(aggregate: Aggregate) -> Value {
    json!({
        "action": "send",
        "channel": {"$ref": format!("#/channels/{}", aggregate.as_str())},
        "summary": format!("written by {}", aggregate.owner()),
    })
}

fn message(entry: &CatalogueEntry, schemas: &mut BTreeMap<String, Value>) -> Result<Value> {
    let mut schema = hoist(entry.schema.as_value().clone(), schemas)?;
    let name = schema["title"].as_str().context("a payload's schema has a title")?.to_owned();
    if let Some(entries) = schema.as_object_mut() {
        entries.remove("title");
    }
    schemas.insert(name.clone(), schema);
    Ok(json!({
        "name": entry.event_type.to_string(),
        "title": name,
        "summary": entry.when,
        "contentType": "application/json",
        "traits": [{"$ref": "#/components/messageTraits/cloudEvent"}],
        "payload": {"$ref": format!("#/components/schemas/{name}")},
        "x-readers": entry.readers,
    }))
}

fn with_headers(mut schemas: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let text = |meaning: &str| json!({"type": "string", "description": meaning});
    let headers = json!({
        "type": "object",
        "description": format!("CloudEvents 1.0, binary mode; values are percent-encoded. The payload is at most {PAYLOAD_MAX} bytes."),
        "required": ["ce-specversion", "ce-id", "ce-type", "ce-source", "ce-subject", "ce-time"],
        "properties": {
            "ce-specversion": {"type": "string", "const": "1.0"},
            "ce-id": text("the event's id; Nats-Msg-Id is the same"),
            "ce-type": text("footplate.<aggregate>.<verb>.v<version>"),
            "ce-source": text("the service and instance that wrote it"),
            "ce-subject": text("the aggregate and its id"),
            "ce-time": text("the writer's clock, RFC 3339"),
            "ce-actor": text("who caused it: an opaque principal id"),
            "ce-correlationid": text("what it belongs to: one id from a submit to the seal"),
            "ce-causationid": text("the event that caused it"),
            "traceparent": text("its W3C trace context"),
        },
    });
    schemas.insert("CloudEventHeaders".to_owned(), headers);
    schemas
}

//! A trial's config: what the sweep's trials have in common, with the point set into it.

use footplate_blobs::{BlobError, Blobs};
use footplate_events::facts::{DocumentRef, Values};
use footplate_types::Invalid;
use serde_json::{Map, Value};

/// The largest config or job document of a sweep.
pub(crate) const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// Why a document cannot be used.
#[derive(Debug)]
pub(crate) enum DocumentError {
    /// The object store does not have it, or has something else.
    Unfit(String),
    /// The object store does not answer.
    Away(String),
}

/// Reads a JSON object from the object store.
pub(crate) async fn read_object(blobs: &Blobs, document: &DocumentRef) -> Result<Map<String, Value>, DocumentError> {
    let bytes = match blobs.get_bytes(&document.digest, DOCUMENT_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(BlobError::NotFound { .. }) => return Err(DocumentError::Unfit(format!("no object of digest {} is stored", document.digest))),
        Err(BlobError::TooLarge { limit }) => return Err(DocumentError::Unfit(format!("it is larger than {limit} bytes"))),
        Err(error) => return Err(DocumentError::Away(error.to_string())),
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(DocumentError::Unfit("it is no JSON object".to_owned())),
        Err(error) => Err(DocumentError::Unfit(format!("it is not JSON: {error}"))),
    }
}

/// Sets a point into a config: each name is a path, sections that are missing are made.
///
/// # Errors
/// A path that leads through something that is no section.
pub(crate) fn set_values(config: &mut Map<String, Value>, values: &Values) -> Result<(), Invalid> {
    for (name, value) in values {
        let mut parts: Vec<&str> = name.as_str().split('.').collect();
        let Some(last) = parts.pop() else { continue };
        let mut section = &mut *config;
        for part in parts {
            let next = section.entry(part).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(next) = next else {
                return Err(Invalid::new("space", name, format!("a path through sections; {part} is none in the job's config")));
            };
            section = next;
        }
        let json = serde_json::to_value(value).map_err(|error| Invalid::new("space", name, error.to_string()))?;
        section.insert(last.to_owned(), json);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_events::facts::ParamValue;
    use footplate_types::ParamKey;
    use serde_json::json;

    fn set(config: Value, name: &str) -> Result<Value, Invalid> {
        let Value::Object(mut config) = config else { panic!("an object") };
        let values = Values::from([(ParamKey::parse(name).unwrap(), ParamValue::Float(0.5))]);
        set_values(&mut config, &values).map(|()| Value::Object(config))
    }

    #[test]
    fn a_point_is_set_by_path_and_the_rest_stays() {
        assert_eq!(
            set(json!({"opt": {"lr": 1, "name": "adam"}, "n": 2}), "opt.lr").unwrap(),
            json!({"opt": {"lr": 0.5, "name": "adam"}, "n": 2})
        );
        assert_eq!(set(json!({}), "a.b.c").unwrap(), json!({"a": {"b": {"c": 0.5}}}));
        let refused = set(json!({"a": 3}), "a.b").unwrap_err();
        assert_eq!((refused.field.as_str(), refused.value.as_str()), ("space", "a.b"));
    }
}

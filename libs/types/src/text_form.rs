//! One table of traits for every type that travels as text: `Display`, `FromStr`, serde and (behind `schema`) JSON Schema
//! all go through the same checked constructor.

/// Gives `$name` (which has `fn parse(&str) -> Result<Self, Invalid>` and `Display`) the traits of a text value.
macro_rules! text_form {
    ($name:ident, $pattern:expr) => {
        impl std::str::FromStr for $name {
            type Err = $crate::Invalid;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a ", stringify!($name), " as text"))
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                        $name::parse(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let pattern: Option<&str> = $pattern;
                match pattern {
                    Some(pattern) => schemars::json_schema!({ "type": "string", "pattern": pattern }),
                    None => schemars::json_schema!({ "type": "string" }),
                }
            }
        }
    };
}

pub(crate) use text_form;

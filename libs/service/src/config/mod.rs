//! Layered configuration: defaults, then a TOML file, then `FOOTPLATE_*` variables, then flags; the later wins.
//!
//! A component declares its [`Knob`]s as typed constants, each with a default and a reason. [`Sources::load`] reads all layers against the
//! whole table and reports every error at once; an unknown key is refused with the nearest known one. [`Config::get`] cannot fail
//! afterwards. There is no global: the value is passed to who needs it.
//!
//! ```
//! use footplate_service::config::{Knob, Sources};
//! use std::time::Duration;
//!
//! const GRACE: Knob<Duration> = Knob::new("drain.grace", "10s", "how long a drain may take before what still runs is cut off");
//! let config = Sources::default().flag("drain.grace", "250ms").load(&[&GRACE]).unwrap();
//! assert_eq!(config.get(&GRACE), Duration::from_millis(250));
//! ```

mod error;
mod knob;
mod layers;
mod value;

pub use error::{ConfigError, ConfigErrors};
pub use knob::{AnyKnob, Knob, knob_table};
pub use layers::{Config, Origin, Sources};
pub use value::{ByteCount, Value};

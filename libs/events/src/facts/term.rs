//! Terms: who leads a service. The sequence of the event is the term.

use footplate_types::ServiceName;
use serde::{Deserialize, Serialize};

/// A leader took over: from here on, what expects an older term event is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TermBegan {
    /// The service that is led.
    pub service: ServiceName,
    /// The instance that leads, such as `host-1/4711`.
    pub instance: String,
}

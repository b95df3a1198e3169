//! The process's metrics, in Prometheus form.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::registry::Registry;

/// A cheap handle on the process's one registry.
///
/// Every name begins with `footplate_`, then the component's name: two components of one process cannot clash.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    component: Option<Arc<str>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { registry: Arc::new(Mutex::new(Registry::with_prefix("footplate"))), component: None }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("component", &self.component).finish_non_exhaustive()
    }
}

impl Metrics {
    /// The same registry, with the component's name in the names of what is registered through it.
    #[must_use]
    pub fn within(&self, component: &str) -> Self {
        Self { registry: self.registry.clone(), component: Some(component.replace('-', "_").into()) }
    }

    /// Registers metrics, in the component's part of the registry. A name registered twice shows twice: register at the start, once.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.component {
            Some(component) => register(registry.sub_registry_with_prefix(component)),
            None => register(&mut registry),
        }
    }

    /// The metrics as OpenMetrics text.
    pub fn show(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("writing to a string cannot fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn names_carry_the_platform_and_the_component() {
        let metrics = Metrics::default();
        let parked = Counter::<u64>::default();
        metrics.within("gpu-inventory").register(|registry| registry.register("parked", "Messages set aside", parked.clone()));
        parked.inc_by(3);
        assert!(metrics.show().contains("footplate_gpu_inventory_parked_total 3"), "{}", metrics.show());
    }
}

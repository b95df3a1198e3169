//! Logs and traces of the process.
//!
//! Logs go to stderr, for people or as one JSON object a line. Spans go to an OTLP endpoint when one is set; without one they still have
//! ids, so that trace context passes through a process that exports nothing. Nothing here may fail a process that already runs.

mod context;

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

pub use context::{continue_trace, current_traceparent, link_trace};

/// How long the last spans may take to leave the process.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);
/// What is logged when nobody says otherwise.
const DEFAULT_FILTER: &str = "info";

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people; in colour on a terminal, unless `NO_COLOR` is set.
    Human,
    /// One JSON object a line.
    Json,
}

/// What telemetry is to do.
#[derive(Clone, Debug)]
pub struct TelemetryOptions {
    /// The service's name (`scheduler`), as traces show it.
    pub service: String,
    /// Which instance of it.
    pub instance: String,
    /// How log lines look.
    pub format: LogFormat,
    /// Colour on human lines.
    pub colour: bool,
    /// Which lines: `info`, or `warn,footplate_scheduler_server=debug`.
    pub filter: String,
    /// Where spans go; nowhere when absent.
    pub otlp_endpoint: Option<String>,
}

/// Telemetry that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log filter cannot be understood.
    #[error(
        "the log filter {filter:?} cannot be understood: {why}; write a level (error, warn, info, debug, trace) or target=level, separated by commas"
    )]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        why: String,
    },
    /// The log format is neither of the two.
    #[error("the log format {0:?} is not known; write human or json")]
    Format(String),
    /// The endpoint for spans cannot be used.
    #[error("spans cannot be sent to {endpoint:?}: {why}; write an address such as http://127.0.0.1:4317")]
    Endpoint {
        /// The endpoint as given.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another part of the process has set up logging already.
    #[error("logging is already set up in this process")]
    Already,
}

impl TelemetryOptions {
    /// What the environment asks for: `FOOTPLATE_LOG_FORMAT` (human or json), `FOOTPLATE_LOG` or `RUST_LOG`, `NO_COLOR`,
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`.
    ///
    /// # Errors
    /// When the format is neither of the two.
    pub fn from_environment(service: &str, instance: &str) -> Result<Self, TelemetryError> {
        Self::from_variables(service, instance, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(service: &str, instance: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, TelemetryError> {
        let format = match variable("FOOTPLATE_LOG_FORMAT").as_deref() {
            None | Some("human") => LogFormat::Human,
            Some("json") => LogFormat::Json,
            Some(other) => return Err(TelemetryError::Format(other.to_owned())),
        };
        Ok(Self {
            service: service.to_owned(),
            instance: instance.to_owned(),
            format,
            colour: variable("NO_COLOR").is_none() && std::io::stderr().is_terminal(),
            filter: variable("FOOTPLATE_LOG").or_else(|| variable("RUST_LOG")).unwrap_or_else(|| DEFAULT_FILTER.to_owned()),
            otlp_endpoint: variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT")),
        })
    }
}

/// Running telemetry: dropped last of all, it sends what is left.
#[derive(Debug)]
#[must_use = "dropping it ends tracing"]
pub struct Telemetry {
    provider: SdkTracerProvider,
}

impl Telemetry {
    /// Starts logging and tracing for the whole process. Call it inside a multi-threaded runtime, which carries the exporter.
    ///
    /// # Errors
    /// When the options cannot be used, or logging is already set up.
    pub fn start(options: &TelemetryOptions) -> Result<Self, TelemetryError> {
        let provider = provider(options)?;
        let tracer = provider.tracer("footplate");
        let spans = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
        let lines = Registry::default().with(lines(options)?).with(spans.with_filter(span_filter()));
        lines.try_init().map_err(|_| TelemetryError::Already)?;
        Ok(Self { provider })
    }

    /// Sends the spans that wait. Blocks for a few seconds at most; call it off the runtime's threads.
    pub fn flush(&self) {
        if let Err(error) = self.provider.force_flush() {
            tracing::warn!(%error, "some spans were not sent");
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // Nobody can be told any more; a collector that is away costs at most the deadline.
        let _ = self.provider.shutdown_with_timeout(FLUSH_DEADLINE);
    }
}

fn lines(options: &TelemetryOptions) -> Result<Box<dyn Layer<Registry> + Send + Sync>, TelemetryError> {
    let filter = EnvFilter::try_new(&options.filter)
        .map_err(|error| TelemetryError::Filter { filter: options.filter.clone(), why: error.to_string() })?;
    let base = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    Ok(match options.format {
        LogFormat::Human => base.with_ansi(options.colour).with_target(false).with_filter(filter).boxed(),
        LogFormat::Json => base.json().flatten_event(true).with_current_span(true).with_span_list(false).with_filter(filter).boxed(),
    })
}

/// Spans of our own crates only: the transport's would multiply a trace by ten and tell nobody anything.
fn span_filter() -> tracing_subscriber::filter::FilterFn {
    tracing_subscriber::filter::filter_fn(|metadata| {
        metadata.target().starts_with("footplate") && *metadata.level() <= tracing::Level::INFO
    })
}

fn provider(options: &TelemetryOptions) -> Result<SdkTracerProvider, TelemetryError> {
    let identity = [KeyValue::new("service.namespace", "footplate"), KeyValue::new("service.instance.id", options.instance.clone())];
    let resource = Resource::builder().with_service_name(options.service.clone()).with_attributes(identity).build();
    // Roots are sampled even where nothing is exported: a service further on may export its part of the trace.
    let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOn));
    let builder = SdkTracerProvider::builder().with_resource(resource).with_sampler(sampler);
    let Some(endpoint) = &options.otlp_endpoint else { return Ok(builder.build()) };
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint.clone()).build();
    let exporter = exporter.map_err(|error| TelemetryError::Endpoint { endpoint: endpoint.clone(), why: error.to_string() })?;
    Ok(builder.with_batch_exporter(exporter).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Result<TelemetryOptions, TelemetryError> {
        let find = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        TelemetryOptions::from_variables("tracker", "one", find)
    }

    #[test]
    fn the_environment_chooses_format_filter_and_endpoint() {
        let plain = options(&[]).unwrap();
        assert_eq!((plain.format, plain.filter.as_str(), plain.otlp_endpoint), (LogFormat::Human, "info", None));
        let set =
            options(&[("FOOTPLATE_LOG_FORMAT", "json"), ("RUST_LOG", "warn"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:4317")]).unwrap();
        assert_eq!((set.format, set.filter.as_str(), set.otlp_endpoint.as_deref()), (LogFormat::Json, "warn", Some("http://x:4317")));
        assert!(options(&[("FOOTPLATE_LOG_FORMAT", "xml")]).unwrap_err().to_string().contains("human or json"));
    }

    #[test]
    fn a_filter_that_cannot_be_understood_is_refused() {
        let options = TelemetryOptions { filter: "footplate=loud".to_owned(), ..options(&[]).unwrap() };
        let error = lines(&options).err().unwrap();
        assert!(error.to_string().contains("footplate=loud"), "{error}");
    }
}

//! How much a job may ask, and how much text may come with it: what no machine has and no event can hold is refused at the door, by its name.

use super::JobSpec;
use footplate_types::Invalid;

impl JobSpec {
    /// The most memory or disk of a node, and memory of a GPU, in bytes: 1 EiB. No machine has it, and sums of it over a gang stay exact.
    pub const BYTES_MAX: u64 = 1 << 60;
    /// The most logical CPUs of a node.
    pub const CPUS_MAX: u32 = 1 << 20;
    /// The longest grace, warning ahead of a stop, and back-off: one day. Whoever must leave has left by then.
    pub const STOP_MAX_MS: u64 = 86_400_000;
    /// The most paths that are told as masked.
    pub const MASKED_MAX: usize = 4_096;
    /// The longest text of a label (with its key), a pool's name, or a masked path, in characters.
    pub const WORD_MAX: usize = 1_000;
    /// The most bytes of all texts together, as they stand in the event: an event is at most 256 KiB, and ids and numbers need the rest.
    pub const TEXT_BYTES_MAX: u64 = 192 * 1024;

    /// Checks amounts and texts. The first fault is told.
    pub(super) fn validate_sizes(&self) -> Result<(), Invalid> {
        let within = |field: &str, value: u64, most: u64| {
            if value <= most { Ok(()) } else { Err(Invalid::new(field, value, format!("0 to {most}"))) }
        };
        for asked in self.asks() {
            within(&asked.field(".cpus"), asked.per_node.cpus.into(), Self::CPUS_MAX.into())?;
            within(&asked.field(".memory"), asked.per_node.memory_bytes, Self::BYTES_MAX)?;
            within(&asked.field(".disk"), asked.per_node.disk_bytes, Self::BYTES_MAX)?;
            within(&asked.field(".gpu.memory"), asked.per_node.gpu_memory_bytes, Self::BYTES_MAX)?;
        }
        within("stop.grace", self.stop.grace.0, Self::STOP_MAX_MS)?;
        within("stop.notify.before", self.stop.notice.map_or(0, |notice| notice.before.0), Self::STOP_MAX_MS)?;
        within("masked (count)", self.masked.len() as u64, Self::MASKED_MAX as u64)?;
        if self.labels.contains_key("") {
            return Err(Invalid::new("labels", "a label without a key", "a key of at least 1 character for each"));
        }
        for (field, most, text) in self.texts() {
            within(&format!("{field} (characters)"), text.chars().count() as u64, most as u64)?;
        }
        within("job (bytes of all its texts)", self.text_bytes(), Self::TEXT_BYTES_MAX)
    }

    /// The bytes of every text and name in the event.
    fn text_bytes(&self) -> u64 {
        let labels =
            self.labels.iter().chain(&self.placement.labels).map(|(key, value)| stored_bytes(key).saturating_add(stored_bytes(value)));
        let texts = self.texts().map(|(_, _, text)| stored_bytes(text));
        let nodes = self.placement.nodes.iter().chain(&self.placement.exclude).map(|name| stored_bytes(name.as_str()));
        // With roles those of the first stand there twice.
        let of_roles = self.roles.iter().flat_map(|role| &role.per_node.gpu_models);
        let models = self.resources.per_node.gpu_models.iter().chain(of_roles).map(|model| stored_bytes(model.as_str()));
        let objectives = self.objectives.iter().map(|name| stored_bytes(name.as_str()));
        let tolerations = self.placement.tolerations.iter().map(|toleration| stored_bytes(&toleration.to_string()));
        let names = [self.name.as_str(), self.experiment.as_str()].into_iter().map(stored_bytes);
        labels.chain(texts).chain(nodes).chain(models).chain(objectives).chain(tolerations).chain(names).fold(0, u64::saturating_add)
    }

    /// The texts that are a client's own words, with the most characters that each may have.
    fn texts(&self) -> impl Iterator<Item = (&'static str, usize, &str)> {
        let inputs = self.inputs.iter().flat_map(|input| {
            [("data.name", Self::WORD_MAX, input.name.as_str()), ("data.snapshot", super::TEXT_MAX, input.snapshot.as_str())]
        });
        let source = self.source.iter().flat_map(|source| {
            [
                ("source.commit", &source.commit),
                ("source.branch", &source.branch),
                ("source.remote", &source.remote),
                ("source.folder", &source.folder),
                ("source.remark", &source.remark),
            ]
            .map(|(field, text)| (field, super::TEXT_MAX, text.as_str()))
        });
        let why = [("why.hypothesis", &self.why.hypothesis), ("why.success", &self.why.success)];
        let pool = self.placement.pool.iter().map(|pool| ("placement.pool", Self::WORD_MAX, pool.as_str()));
        let masked = self.masked.iter().map(|path| ("masked", Self::WORD_MAX, path.as_str()));
        why.into_iter().map(|(field, text)| (field, super::TEXT_MAX, text.as_str())).chain(pool).chain(masked).chain(inputs).chain(source)
    }
}

/// The bytes of a text in JSON, its quotes included: a control character takes six.
fn stored_bytes(text: &str) -> u64 {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(byte).fold(3, u64::saturating_add)
}

//! The openb traces (Alibaba's cluster-trace-gpu-v2023): nodes and pods as they lie in the folder.

use crate::trace::Data;
use anyhow::{Context, Result, bail, ensure};
use footplate_scheduler_core::pack::{Demand, Host, Models, WHOLE};

/// The nodes of the cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Their names, in the order of [`Cluster::hosts`].
    pub names: Vec<String>,
    /// The nodes, empty.
    pub hosts: Vec<Host>,
    models: Vec<String>,
}

impl Cluster {
    /// The 1,213 nodes with GPUs.
    pub fn read(data: &Data) -> Result<Self> {
        Self::parse(&data.text("openb/openb_node_list_gpu_node.csv")?)
    }

    /// Nodes from a table with the columns sn, cpu_milli, memory_mib, gpu, model.
    pub fn parse(text: &str) -> Result<Self> {
        let table = Table::parse(text, &["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
        let mut models: Vec<String> = table.rows.iter().map(|row| row.text(4).to_owned()).collect();
        models.sort();
        models.dedup();
        ensure!(models.len() <= 64, "more than 64 models of GPUs");
        let mut cluster = Self { names: Vec::new(), hosts: Vec::new(), models };
        for row in &table.rows {
            let model = cluster.model(row.text(4)).unwrap_or_default();
            let gpus = vec![WHOLE; row.number(3)? as usize];
            let host = Host::new(row.number(1)?, mib(row.number(2)?)?, model, &gpus);
            cluster.hosts.push(host.with_context(|| format!("node {} has too many GPUs", row.text(0)))?);
            cluster.names.push(row.text(0).to_owned());
        }
        Ok(cluster)
    }

    fn model(&self, name: &str) -> Option<u8> {
        self.models.iter().position(|model| model == name).and_then(|at| u8::try_from(at).ok())
    }

    /// All GPUs, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        self.hosts.iter().map(|host| u64::from(host.gpu_milli())).sum()
    }
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// What it asks.
    pub demand: Demand,
}

/// The pods of a variant of the trace, by name.
pub fn pods(data: &Data, cluster: &Cluster, variant: &str) -> Result<Vec<Pod>> {
    let text = data.text(&format!("openb/openb_pod_list_{variant}.csv"))?;
    parse_pods(&text, cluster).with_context(|| format!("cannot understand the pods of {variant}"))
}

/// Pods from a table with the columns name, cpu_milli, memory_mib, num_gpu, gpu_milli and, where there is one, gpu_spec (`A|B`; empty: any).
pub fn parse_pods(text: &str, cluster: &Cluster) -> Result<Vec<Pod>> {
    let table = Table::parse(text, &["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"])?;
    let mut pods = Vec::new();
    for row in &table.rows {
        let gpus = u8::try_from(row.number(3)?).context("more than 255 GPUs")?;
        let specs = table.optional("gpu_spec").map_or("", |at| row.text(at));
        let models =
            if specs.is_empty() || gpus == 0 { Models::ANY } else { Models::only(specs.split('|').filter_map(|name| cluster.model(name))) };
        let gpu_milli = if gpus == 0 { 0 } else { row.number(4)?.min(WHOLE.into()) as u16 };
        let demand = Demand { cpu_milli: row.number(1)?, memory_bytes: mib(row.number(2)?)?, gpus, gpu_milli, models };
        pods.push(Pod { name: row.text(0).to_owned(), demand });
    }
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(pods)
}

fn mib(count: u64) -> Result<u64> {
    count.checked_mul(1 << 20).context("more bytes than there are numbers for")
}

/// A table of comma-separated values without quotes.
struct Table<'a> {
    columns: Vec<&'a str>,
    rows: Vec<Row<'a>>,
}

struct Row<'a>(Vec<&'a str>);

impl<'a> Table<'a> {
    /// Reads a table whose first columns are these.
    fn parse(text: &'a str, first: &[&str]) -> Result<Self> {
        let mut lines = text.lines();
        let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
        ensure!(columns.starts_with(first), "the columns are not {}, but {}", first.join(","), columns.join(","));
        let mut rows = Vec::new();
        for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
            let row: Vec<&str> = line.split(',').collect();
            ensure!(row.len() == columns.len(), "line {} has {} columns instead of {}", number + 2, row.len(), columns.len());
            rows.push(Row(row));
        }
        Ok(Self { columns, rows })
    }

    fn optional(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| *column == name)
    }
}

impl Row<'_> {
    fn text(&self, column: usize) -> &str {
        self.0.get(column).copied().unwrap_or_default()
    }

    fn number(&self, column: usize) -> Result<u64> {
        match self.text(column).parse() {
            Ok(number) => Ok(number),
            Err(_) => bail!("{:?} is not a whole number (of {})", self.text(column), self.text(0)),
        }
    }
}

//! The Standard Workload Format: one job a line, 18 columns, comments behind a semicolon.

use anyhow::{Context, Result, ensure};

/// A job of such a trace. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Job {
    /// Its number in the file.
    pub number: u32,
    /// When it was submitted.
    pub submitted_s: u64,
    /// How long it ran.
    pub runs_s: u64,
    /// How many processors it takes: one GPU each.
    pub units: u32,
    /// How long it asked to run: what policies know of its length.
    pub asked_s: u64,
}

/// A machine's jobs.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its processors.
    pub units: u32,
    /// Its jobs, by number.
    pub jobs: Vec<Job>,
}

/// Reads a trace as RLScheduler reads it: the asked processors, or the used ones; a job without a run time counts as ten seconds, one
/// of none at all is left out.
pub fn parse(text: &str) -> Result<Workload> {
    let mut workload = Workload { units: 0, jobs: Vec::new() };
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix(';') {
            let size = comment.trim().strip_prefix("MaxProcs:").or(comment.trim().strip_prefix("MaxNodes:"));
            if let Some(size) = size.and_then(|size| size.trim().parse().ok()) {
                workload.units = workload.units.max(size);
            }
            continue;
        }
        if let Some(job) = job(line).with_context(|| format!("line {line:?}"))? {
            workload.jobs.push(job);
        }
    }
    ensure!(workload.units > 0, "no line says MaxProcs or MaxNodes");
    let widest = workload.jobs.iter().map(|job| job.units).max().unwrap_or(0);
    ensure!(widest <= workload.units, "a job asks for {widest} of {} processors", workload.units);
    workload.jobs.sort_unstable();
    let back = workload.jobs.windows(2).find(|two| two[0].submitted_s > two[1].submitted_s);
    ensure!(back.is_none(), "the jobs are not numbered as they were submitted: {back:?}");
    Ok(workload)
}

fn job(line: &str) -> Result<Option<Job>> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    if columns.len() < 18 {
        return Ok(None);
    }
    let number = |at: usize| columns[at].parse::<i64>().with_context(|| format!("column {}", at + 1));
    let (runs, used, wanted, asked) = (number(3)?, number(4)?, number(7)?, number(8)?);
    let runs = if runs < 0 { 10 } else { runs };
    if runs == 0 {
        return Ok(None);
    }
    Ok(Some(Job {
        number: u32::try_from(number(0)?)?,
        submitted_s: u64::try_from(number(1)?)?,
        runs_s: u64::try_from(runs)?,
        units: u32::try_from(if wanted > 0 { wanted } else { used })?,
        asked_s: u64::try_from(if asked > 0 { asked } else { runs })?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_as_the_authors_read_it() {
        let text = "; Version: 2\n; MaxNodes: 64\n; MaxProcs: 256\n\
            2 30 -1 -1 8 -1 -1 16 500 -1 1 -1 -1 -1 0 -1 -1 -1\n\
            1 20 -1 100 4 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1\n\
            3 40 -1 0 1 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1\n";
        let workload = parse(text).unwrap();
        assert_eq!(workload.units, 256);
        let first = Job { number: 1, submitted_s: 20, runs_s: 100, units: 4, asked_s: 100 };
        let second = Job { number: 2, submitted_s: 30, runs_s: 10, units: 16, asked_s: 500 };
        assert_eq!(workload.jobs, [first, second]);
    }

    #[test]
    fn a_trace_that_cannot_be_is_refused_by_line() {
        assert!(parse("1 2 3\n").is_err(), "nothing says how large the machine is");
        let wide = "; MaxProcs: 4\n1 20 -1 100 5 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1\n";
        assert!(parse(wide).unwrap_err().to_string().contains("5 of 4"));
        let disordered =
            "; MaxProcs: 4\n1 20 -1 9 4 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1\n2 19 -1 9 4 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1\n";
        assert!(parse(disordered).unwrap_err().to_string().contains("submitted"));
        let broken = "; MaxProcs: 4\n1 x -1 100 4 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1\n";
        assert!(format!("{:#}", parse(broken).unwrap_err()).contains("1 x -1"));
    }
}

//! The host's own figures, from /proc and the file system.

use std::{fs, path::Path};

/// Logical CPUs that this process may use.
pub(crate) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

fn meminfo(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Memory of the machine, in bytes; 0 when unknown.
pub(crate) fn memory_bytes() -> u64 {
    meminfo("MemTotal").unwrap_or(0)
}

/// Memory that a new program could have, in bytes.
pub(crate) fn free_memory_bytes() -> Option<u64> {
    meminfo("MemAvailable")
}

/// Free disk below `path`, in bytes; 0 when unknown.
pub(crate) fn free_disk_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// CPU time since boot as (busy, all), in clock ticks.
pub(crate) fn cpu_ticks() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let numbers: Vec<u64> = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is in user already.
    let all: u64 = numbers.iter().take(8).sum();
    let idle = numbers.get(3)? + numbers.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_machine_has_cpus_memory_and_disk() {
        assert!(cpus() >= 1);
        assert!(memory_bytes() > 1 << 20);
        assert!(free_memory_bytes().unwrap() <= memory_bytes());
        assert!(free_disk_bytes(Path::new("/")) > 0);
        assert_eq!(free_disk_bytes(Path::new("/no/such/folder")), 0);
        let (busy, all) = cpu_ticks().unwrap();
        assert!(busy <= all && all > 0);
    }
}

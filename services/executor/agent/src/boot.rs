//! This boot of the machine: leases are measured by its clock, which goes on while the machine sleeps and is set by nobody.

pub(crate) use footplate_clock::boot_nanos as now_ns;

/// The kernel's id of this boot; `unknown` where the kernel tells none.
pub fn id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

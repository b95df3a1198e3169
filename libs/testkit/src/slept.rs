//! A machine that has slept, as far as its clocks can tell: a time namespace whose boot-time clock is ahead of the monotonic one.

use std::{
    process::{Command, Output},
    time::Duration,
};

/// How long the machine has slept: so far is its boot-time clock ahead.
pub const SLEPT: Duration = Duration::from_secs(3_600);

/// Set in the process that runs inside.
const INSIDE: &str = "FOOTPLATE_TEST_SLEPT";

/// Where a test that asks for [`on_a_machine_that_slept`] stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// On that machine: the clocks differ by at least [`SLEPT`].
    Here,
    /// It has run there, in a process of its own, and passed.
    Elsewhere,
    /// On this machine as it is: the system lets nobody set the clocks of a namespace.
    NotPermitted,
}

/// Runs the test `name` (its whole path, as `--list` shows it) of this test binary once more, alone, where the boot-time clock has gone
/// on by [`SLEPT`] while the monotonic one stood still.
///
/// # Panics
/// With the inner run's output, when it failed.
pub fn on_a_machine_that_slept(name: &str) -> Slept {
    if std::env::var_os(INSIDE).is_some() {
        return Slept::Here;
    }
    let inside = |namespaces: &[&str], command: &[&str]| -> std::io::Result<Output> {
        let ahead = SLEPT.as_secs().to_string();
        Command::new("unshare").args(namespaces).args(["--boottime", &ahead, "--fork", "--"]).args(command).env(INSIDE, "1").output()
    };
    let ways = [&["--time"][..], &["--user", "--map-root-user", "--time"]];
    let permitted = ways.into_iter().find(|way| inside(way, &["true"]).is_ok_and(|output| output.status.success()));
    let Some(way) = permitted else {
        eprintln!("{name}: no time namespace may be made here; tested on this machine's clocks as they are");
        return Slept::NotPermitted;
    };
    let this = std::env::current_exe().expect("a test knows its own program");
    let this = this.to_str().expect("cargo's paths are text");
    let output = inside(way, &[this, "--exact", name, "--test-threads", "1", "--nocapture"]).expect("it has just been started");
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("1 passed"), "on a machine that slept:\n{told}\n{errors}");
    Slept::Elsewhere
}

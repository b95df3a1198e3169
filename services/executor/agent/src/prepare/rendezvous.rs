//! The port where rank 0 will wait, reserved from `ready` until rank 0 is started, and each attempt's own.
//!
//! It is drawn from outside the range that the kernel gives to outgoing connections, so nothing gets it by chance. A bound socket that does
//! not listen holds it against whoever asks for it by number; it is closed just before rank 0 is started, since a program that binds
//! without `SO_REUSEADDR` could not take it otherwise. A lock file keeps other agents of this machine off it until the attempt ends.

use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, SocketType, bind, socket,
    sockopt::{set_ipv6_v6only, set_socket_reuseaddr},
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::fd::OwnedFd,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

/// The lowest port that is given out.
const LOWEST: u16 = 10_000;
/// The kernel's own default, for when it does not tell.
const EPHEMERAL: (u16, u16) = (32_768, 60_999);
/// Ports that are tried.
const TRIES: u32 = 256;

/// No port was free.
#[derive(Debug, thiserror::Error)]
#[error("no free rendezvous port found in {TRIES} tries: {last}")]
pub struct PortTaken {
    /// What the last try said.
    pub last: io::Error,
}

/// A port that is this attempt's until this is dropped.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    held: Option<OwnedFd>,
    /// Locked: other agents of this machine stay away. The kernel frees it when this agent dies.
    _lock: File,
}

impl ReservedPort {
    /// Reserves a port; `locks` is a folder that all agents of the machine share, `random` draws a number.
    pub fn reserve(locks: &Path, mut random: impl FnMut() -> u32) -> Result<Self, PortTaken> {
        let range = ephemeral_range();
        let mut last = io::Error::other("nothing tried");
        for _ in 0..TRIES {
            let port = draw(random(), range);
            match Self::claim(locks, port) {
                Ok(reserved) => return Ok(reserved),
                Err(error) => last = error,
            }
        }
        Err(PortTaken { last })
    }

    /// Reserves this very port again (after a restart of the agent before rank 0 was started).
    pub fn claim(locks: &Path, port: u16) -> io::Result<Self> {
        let lock = lock_port(locks, port)?;
        let held = hold(port)?;
        Ok(Self { port, held: Some(held), _lock: lock })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets rank 0 bind it; other agents still stay away.
    pub fn release_to_worker(&mut self) {
        self.held = None;
    }
}

fn lock_port(locks: &Path, port: u16) -> io::Result<File> {
    if !locks.is_dir() {
        fs::create_dir_all(locks)?;
        // Agents of other users of this machine share the folder.
        let _ = fs::set_permissions(locks, fs::Permissions::from_mode(0o1777));
    }
    let path = locks.join(port.to_string());
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Binds without listening, on every address. Bound without `SO_REUSEADDR`, so that a listener or a connection in `TIME_WAIT` refuses it.
fn hold(port: u16) -> io::Result<OwnedFd> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    match rustix::net::socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None) {
        Ok(both) => {
            set_ipv6_v6only(&both, false)?;
            bind(&both, &SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)))?;
            // From here on a program that does set SO_REUSEADDR may bind beside it.
            set_socket_reuseaddr(&both, true)?;
            Ok(both)
        }
        Err(_) => {
            let four = socket(AddressFamily::INET, SocketType::STREAM, None)?;
            bind(&four, &SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)))?;
            set_socket_reuseaddr(&four, true)?;
            Ok(four)
        }
    }
}

fn ephemeral_range() -> (u16, u16) {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(low), Some(high)) if low < high => (low, high),
        _ => EPHEMERAL,
    }
}

/// A port from [`LOWEST`] up and outside of `range`; inside it only where the range leaves nothing else.
fn draw(random: u32, range: (u16, u16)) -> u16 {
    let below = range.0.saturating_sub(LOWEST);
    let above = u16::MAX - range.1;
    let free = u32::from(below) + u32::from(above);
    if free == 0 {
        return LOWEST + (random % u32::from(u16::MAX - LOWEST)) as u16;
    }
    let at = (random % free) as u16;
    if at < below { LOWEST + at } else { range.1 + 1 + (at - below) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    fn random() -> u32 {
        u32::from_le_bytes(footplate_clock::entropy())
    }

    /// Whether python can bind the port, with or without SO_REUSEADDR, and listen on it.
    fn python_binds(port: u16, reuse: bool, host: &str) -> bool {
        let script = format!(
            "import socket\ns = socket.socket(socket.AF_INET6 if ':' in '{host}' else socket.AF_INET)\n\
             s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, {})\ns.bind(('{host}', {port}))\ns.listen(1)",
            i32::from(reuse)
        );
        Command::new("python3").args(["-c", &script]).stderr(std::process::Stdio::null()).status().unwrap().success()
    }

    #[test]
    fn a_reserved_port_is_nobody_elses_until_released_and_then_binds_either_way() {
        let locks = tempfile::tempdir().unwrap();
        let mut reserved = ReservedPort::reserve(locks.path(), random).unwrap();
        let port = reserved.port();
        assert!(!python_binds(port, false, "127.0.0.1"));
        assert!(ReservedPort::claim(locks.path(), port).is_err(), "another agent stays away");
        reserved.release_to_worker();
        for (reuse, host) in [(false, "127.0.0.1"), (true, "127.0.0.1"), (false, "::"), (true, "0.0.0.0")] {
            assert!(python_binds(port, reuse, host), "{reuse} {host}");
        }
        assert!(ReservedPort::claim(locks.path(), port).is_err(), "until the attempt ends");
        drop(reserved);
        assert!(ReservedPort::claim(locks.path(), port).is_ok());
    }

    #[test]
    fn a_port_with_a_listener_or_with_connections_in_time_wait_is_not_given_out() {
        let locks = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(ReservedPort::claim(locks.path(), port).is_err());
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        // The side that closes first keeps the port in TIME_WAIT.
        drop(server);
        drop(client);
        drop(listener);
        assert!(ReservedPort::claim(locks.path(), port).is_err());
    }

    #[test]
    fn drawn_ports_keep_off_the_range_of_outgoing_connections() {
        let range = (32_768, 60_999);
        for seed in (0..u32::MAX).step_by(9_999_991) {
            let port = draw(seed, range);
            assert!(port >= LOWEST && !(range.0..=range.1).contains(&port), "{port}");
        }
        assert!(draw(7, (1_024, 65_535)) >= LOWEST);
    }
}

//! Ports for servers that restart on the same port.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Below the ephemeral range of Linux: while a server is down, no other connection gets its port by chance.
const FIRST: u16 = 10_000;
const PORTS: u64 = 10_000;
/// The offset of the cluster bus port from the port of a node.
const BUS: u16 = 10_000;
const TRIED_MAX: usize = 200;

/// A free port; with `bus`, its bus port is free too.
pub(crate) fn free_port(bus: bool) -> io::Result<u16> {
    let random = RandomState::new();
    let offset = |tried| u16::try_from(random.hash_one(tried) % PORTS).expect("an offset fits a port");
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let mut ports = (0..TRIED_MAX).map(|tried| FIRST + offset(tried));
    ports
        .find(|port| free(*port) && (!bus || free(*port + BUS)))
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "found no free port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound_with_its_bus() {
        let port = free_port(true).unwrap();
        assert!((FIRST..FIRST + BUS).contains(&port));
        let bound = [port, port + BUS].map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        assert!(bound.iter().all(Result::is_ok), "{bound:?}");
    }
}

//! Ports for servers that restart on the same port.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// Below the ephemeral range of Linux: while a server is down, no other connection gets its port by chance.
const FIRST: u16 = 10_000;
const PORTS: u64 = 10_000;
/// The offset of the cluster bus port from the port of a node.
const BUS: u16 = 10_000;
const TRIED_MAX: usize = 200;

/// A port that no other test gets while this lives, in any process: also while its server is down. Otherwise clients that
/// wait for their server would find a stranger there.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// The same number as a UDP port, which servers do not use. The system gives it back whatever happens to this process.
    _reservation: UdpSocket,
}

impl Port {
    /// A free one; with `bus`, its bus port is free too.
    pub(crate) fn reserve(bus: bool) -> io::Result<Self> {
        let random = RandomState::new();
        let offset = |tried| u16::try_from(random.hash_one(tried) % PORTS).expect("an offset fits a port");
        let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        let mut ports = (0..TRIED_MAX).map(|tried| FIRST + offset(tried));
        ports
            .find_map(|number| {
                let _reservation = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
                let is_free = free(number) && (!bus || free(number + BUS));
                is_free.then_some(Self { number, _reservation })
            })
            .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "found no free port"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound_with_its_bus() {
        let port = Port::reserve(true).unwrap().number;
        assert!((FIRST..FIRST + BUS).contains(&port));
        let bound = [port, port + BUS].map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        assert!(bound.iter().all(Result::is_ok), "{bound:?}");
    }

    #[test]
    fn no_port_is_reserved_twice() {
        let ports: Vec<_> = (0..300).map(|_| Port::reserve(false).unwrap()).collect();
        let mut numbers: Vec<_> = ports.iter().map(|port| port.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 300);
    }
}

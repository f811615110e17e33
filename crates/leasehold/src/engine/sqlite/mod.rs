//! `sqlite:PATH` — leases between the processes of one host.

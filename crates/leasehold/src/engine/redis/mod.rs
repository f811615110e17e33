//! `redis://` — leases between hosts, on one Redis or Valkey.

//! Certificates for TLS tests, made fresh each time.

#[cfg(feature = "cases")]
mod signing;

use std::path::PathBuf;
use std::sync::Arc;

use crate::folder::Folder;

/// An authority with a server and a client certificate, and a second authority that signed neither; PEM files
/// that live as long as the last clone.
///
/// ```
/// let certificates = leasehold_testkit::Certificates::generate();
/// assert!(certificates.ca().is_file());
/// assert_ne!(certificates.ca(), certificates.wrong_ca());
/// ```
#[derive(Debug, Clone)]
pub struct Certificates {
    dir: Arc<Folder>,
}

impl Certificates {
    /// The authority to trust.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// An authority that has nothing to do with the server: trusting only it must fail.
    pub fn wrong_ca(&self) -> PathBuf {
        self.file("wrong-ca.pem")
    }

    /// The server's certificate.
    pub fn server_cert(&self) -> PathBuf {
        self.file("server.pem")
    }

    /// The server's private key.
    pub fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    /// A client's certificate.
    pub fn client_cert(&self) -> PathBuf {
        self.file("client.pem")
    }

    /// The client's private key.
    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }

    /// A client certificate of the unrelated authority: a server that asks for one must refuse it.
    pub fn wrong_client_cert(&self) -> PathBuf {
        self.file("wrong-client.pem")
    }

    /// The private key of [`wrong_client_cert`](Self::wrong_client_cert).
    pub fn wrong_client_key(&self) -> PathBuf {
        self.file("wrong-client.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

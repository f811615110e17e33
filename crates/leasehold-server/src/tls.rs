//! TLS of the service's own address, with client certificates if it is told an authority for them.

use std::{fs, path::Path, sync::Arc};

use leasehold::{Error, Result};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key; made with [`Tls::load`].
#[derive(Clone)]
pub struct Tls(pub(crate) TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads PEM files. With `client_ca` clients need a certificate of that authority.
    ///
    /// # Errors
    /// `invalid`: names the file and what is wrong with it.
    pub fn load(cert: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Self> {
        let chain = certificates(cert, "file of the certificate")?;
        let private =
            PrivateKeyDer::from_pem_slice(&read(key, "file of the private key")?).map_err(|error| {
                refused("file of the private key", key, format!("a key in PEM form: {error}"))
            })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::unsupported("TLS", error.to_string()))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let what = "file of the client authority";
                let mut roots = RootCertStore::empty();
                for authority in certificates(path, what)? {
                    roots.add(authority).map_err(|error| refused(what, path, error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| refused(what, path, error.to_string()))?,
                )
            }
        };
        let mut config = builder.with_single_cert(chain, private).map_err(|error| {
            refused("file of the certificate", cert, format!("one that fits the key: {error}"))
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }
}

fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path, what)?;
    let read = CertificateDer::pem_slice_iter(&bytes).collect::<std::result::Result<Vec<_>, _>>();
    let found = read.map_err(|error| refused(what, path, format!("certificates in PEM form: {error}")))?;
    if found.is_empty() {
        return Err(refused(what, path, "at least one certificate in PEM form"));
    }
    Ok(found)
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| refused(what, path, format!("a readable file: {error}")))
}

fn refused(what: &str, path: &Path, expected: impl Into<String>) -> Error {
    Error::invalid(what, path.display().to_string(), expected)
}

//! TLS with certificates that the parameters of a URL name. The server's certificate is always verified.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_postgres::Socket;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{StoreUrl, Tls};
use leasehold_core::error::{Error, Result};

pub(in super::super) type Connection = tokio_postgres::Connection<
    Socket,
    <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream,
>;

impl StoreUrl {
    pub(super) fn rustls(&self) -> Result<Tls> {
        let mut roots = RootCertStore::empty();
        match self.parameter("ca") {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(_) => {
                for certificate in self.certificates("ca")? {
                    roots.add(certificate).map_err(|error| self.wrong("ca", &error.to_string()))?;
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| self.refuse(&error.to_string()))?
            .with_root_certificates(roots);
        let config = match (self.parameter("cert"), self.parameter("key")) {
            (None, None) => builder.with_no_client_auth(),
            (Some(_), Some(path)) => {
                let key = PrivateKeyDer::from_pem_file(path)
                    .map_err(|error| self.wrong("key", &error.to_string()))?;
                let certificates = self.certificates("cert")?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|error| self.wrong("cert", &error.to_string()))?
            }
            _ => return Err(self.refuse("cert and key together")),
        };
        Ok(Tls::Rustls(MakeRustlsConnect::new(config)))
    }

    fn certificates(&self, parameter: &str) -> Result<Vec<CertificateDer<'static>>> {
        let path = self.parameter(parameter).unwrap_or_default();
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = read.map_err(|error| self.wrong(parameter, &error.to_string()))?;
        if found.is_empty() { Err(self.wrong(parameter, "there is none")) } else { Ok(found) }
    }

    fn wrong(&self, parameter: &str, why: &str) -> Error {
        let path = self.parameter(parameter).unwrap_or_default();
        let kind = if parameter == "key" { "private key" } else { "certificate" };
        Error::invalid(parameter, path, format!("a file with a {kind} in PEM form ({why})"))
    }
}

//! Clients with TLS: certificates that the parameters of a URL name.

use redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};

use super::{StoreUrl, read};
use leasehold_core::error::{Error, Result};

impl StoreUrl {
    pub(super) fn open_with_tls(&self, info: ConnectionInfo) -> Result<Client> {
        let client_tls = match (self.pem("cert", CERTIFICATE)?, self.pem("key", PRIVATE_KEY)?) {
            (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
            (None, None) => None,
            _ => return Err(self.refuse("cert and key together")),
        };
        // Without one, or with two to choose from, rustls panics when it is dialled. A program's own choice stays.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _another_was_faster = rustls::crypto::ring::default_provider().install_default();
        }
        let certificates = TlsCertificates { client_tls, root_cert: self.pem("ca", CERTIFICATE)? };
        Client::build_with_tls(info, certificates)
            .map_err(|error| self.refuse(&format!("certificates in PEM form: {error}")))
    }

    /// A file that must hold at least one of `kind`: without this check a wrong file would only show as a certificate that
    /// nobody trusts.
    fn pem(&self, parameter: &str, kind: &str) -> Result<Option<Vec<u8>>> {
        let Some(path) = self.parameter(parameter) else { return Ok(None) };
        let bytes = read(parameter, path)?;
        if bytes.windows(kind.len()).any(|part| part == kind.as_bytes()) {
            return Ok(Some(bytes));
        }
        let kind = kind.trim_end_matches('-').to_lowercase();
        Err(Error::invalid(parameter, path, format!("a file with a {kind} in PEM form")))
    }
}

const CERTIFICATE: &str = "CERTIFICATE-----";
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

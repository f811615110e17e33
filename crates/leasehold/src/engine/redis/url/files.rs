//! What a URL's parameters name: passwords and certificates in files.

use std::path::Path;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::Endpoint;
use crate::error::{Error, Result};

#[derive(Clone, Default)]
pub(super) struct Files {
    pub(super) password: Option<String>,
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl Files {
    /// Reads what a parameter names; false if it names no file.
    pub(super) fn take(&mut self, parameter: &str, path: &str) -> Result<bool> {
        match parameter {
            "password-file" => self.password = Some(read_password(parameter, path)?),
            "ca" => self.ca = Some(read_pem(parameter, path, "CERTIFICATE-----")?),
            "cert" => self.cert = Some(read_pem(parameter, path, "CERTIFICATE-----")?),
            "key" => self.key = Some(read_pem(parameter, path, "PRIVATE KEY-----")?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The driver's client for one server.
    pub(super) fn client(
        self,
        Endpoint { host, port }: Endpoint,
        settings: RedisConnectionInfo,
        tls: bool,
    ) -> Result<redis::Client, String> {
        let addr = if tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let info = addr.into_connection_info().map_err(|error| error.to_string())?;
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        self.open(info.set_redis_settings(settings).set_tcp_settings(tcp), tls)
    }

    #[cfg(feature = "tls")]
    fn open(self, info: ConnectionInfo, tls: bool) -> Result<redis::Client, String> {
        if !tls {
            return redis::Client::open(info).map_err(|error| error.to_string());
        }
        let client_tls = match (self.cert, self.key) {
            (Some(client_cert), Some(client_key)) => Some(redis::ClientTlsConfig { client_cert, client_key }),
            (None, None) => None,
            _ => return Err("cert and key together".into()),
        };
        // Without one, or with two to choose from, rustls panics when it is dialled. A program's own choice stays.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _another_was_faster = rustls::crypto::ring::default_provider().install_default();
        }
        let certificates = redis::TlsCertificates { client_tls, root_cert: self.ca };
        redis::Client::build_with_tls(info, certificates)
            .map_err(|error| format!("certificates in PEM form: {error}"))
    }

    #[cfg(not(feature = "tls"))]
    fn open(self, info: ConnectionInfo, _: bool) -> Result<redis::Client, String> {
        redis::Client::open(info).map_err(|error| error.to_string())
    }
}

pub(super) fn read_password(parameter: &str, path: &str) -> Result<String> {
    let text = String::from_utf8_lossy(&read(parameter, path)?).into_owned();
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn read(parameter: &str, path: &str) -> Result<Vec<u8>> {
    std::fs::read(Path::new(path))
        .map_err(|error| Error::invalid(parameter, path, format!("a readable file ({error})")))
}

/// A file that must hold at least one of `kind`: without this check a wrong file would only show as a certificate that
/// nobody trusts.
fn read_pem(parameter: &str, path: &str, kind: &str) -> Result<Vec<u8>> {
    let bytes = read(parameter, path)?;
    if bytes.windows(kind.len()).any(|part| part == kind.as_bytes()) {
        return Ok(bytes);
    }
    let kind = kind.trim_end_matches('-').to_lowercase();
    Err(Error::invalid(parameter, path, format!("a file with a {kind} in PEM form")))
}

//! How certificates are made and signed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use super::Certificates;
use crate::folder::Folder;

impl Certificates {
    /// Makes them; the server's is for `127.0.0.1` and `localhost`.
    ///
    /// # Panics
    /// When the files cannot be written.
    pub fn generate() -> Self {
        let dir = Folder::create().expect("cannot make a folder for certificates");
        let ca = authority("leasehold test authority");
        let wrong_ca = authority("unrelated test authority");
        write(dir.path(), "ca.pem", &ca.pem());
        write(dir.path(), "wrong-ca.pem", &wrong_ca.pem());
        // A node of a cluster is a client of the others.
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        issue(dir.path(), "server", &["127.0.0.1", "localhost"], &both, &ca);
        issue(dir.path(), "client", &["client"], &both[1..], &ca);
        issue(dir.path(), "wrong-client", &["client"], &both[1..], &wrong_ca);
        Self { dir: Arc::new(dir) }
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, key()).expect("cannot sign an authority")
}

fn issue(
    dir: &Path,
    file: &str,
    names: &[&str],
    usages: &[ExtendedKeyUsagePurpose],
    issuer: &Issuer<'_, KeyPair>,
) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("the names are valid");
    params.distinguished_name.push(DnType::CommonName, format!("leasehold test {file}"));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages.to_vec();
    params.use_authority_key_identifier_extension = true;
    let key = key();
    let certificate = params.signed_by(&key, issuer).expect("cannot sign a certificate");
    write(dir, &format!("{file}.pem"), &certificate.pem());
    write(dir, &format!("{file}.key"), &key.serialize_pem());
}

fn key() -> KeyPair {
    KeyPair::generate().expect("cannot make a key")
}

fn write(dir: &Path, name: &str, pem: &str) {
    fs::write(dir.join(name), pem).expect("cannot write a certificate");
}

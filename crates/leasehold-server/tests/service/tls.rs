//! TLS of the service's own address, and certificates of clients.

use std::{io::Write, path::Path, process::Command};

use leasehold_server::Tls;
use leasehold_testkit::Certificates;

use crate::client::{Service, connect};

/// What curl gets with these options, or the code with which it gives up.
fn curl(service: &Service, options: &[&Path]) -> Result<String, i32> {
    let url = format!("https://localhost:{}/healthz", service.address.port());
    let names = ["--cacert", "--cert", "--key"];
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "30"]);
    for (name, path) in names.iter().zip(options) {
        curl.arg(name).arg(path);
    }
    let ran = curl.arg(url).output().unwrap();
    match ran.status.code() {
        Some(0) => Ok(String::from_utf8(ran.stdout).unwrap()),
        code => Err(code.unwrap_or(-1)),
    }
}

fn is_skipped() -> bool {
    let found = Command::new("curl").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: curl is not installed");
    }
    !found
}

#[test]
fn a_client_that_trusts_the_authority_is_served_and_no_other() {
    if is_skipped() {
        return;
    }
    let certificates = Certificates::generate();
    let tls = Tls::load(&certificates.server_cert(), &certificates.server_key(), None).unwrap();
    let service = Service::with("memory:", |builder| builder.tls(tls));
    // Somebody who does not speak TLS holds nobody up.
    let mut plain = connect(service.address);
    plain.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(curl(&service, &[&certificates.ca()]).unwrap(), "{\"status\":\"ok\"}");
    assert!(curl(&service, &[&certificates.wrong_ca()]).is_err());
}

#[test]
fn a_client_needs_a_certificate_of_the_authority() {
    if is_skipped() {
        return;
    }
    let certificates = Certificates::generate();
    let (ca, cert, key) = (certificates.ca(), certificates.server_cert(), certificates.server_key());
    let tls = Tls::load(&cert, &key, Some(&ca)).unwrap();
    let service = Service::with("memory:", |builder| builder.tls(tls));
    let mine = [certificates.client_cert(), certificates.client_key()];
    assert_eq!(curl(&service, &[&ca, &mine[0], &mine[1]]).unwrap(), "{\"status\":\"ok\"}");
    let other = [certificates.wrong_client_cert(), certificates.wrong_client_key()];
    assert!(curl(&service, &[&ca, &other[0], &other[1]]).is_err());
    assert!(curl(&service, &[&ca]).is_err(), "none at all");
}

#[test]
fn a_wrong_file_is_named() {
    let certificates = Certificates::generate();
    let (cert, key) = (certificates.server_cert(), certificates.server_key());
    let (other, none) = (certificates.client_key(), Path::new("none.pem").to_path_buf());
    for (cert, key, ca, says) in [
        (&key, &key, None, "server.key"),
        (&cert, &cert, None, "server.pem"),
        (&cert, &other, None, "server.pem"),
        (&cert, &key, Some(&key), "server.key"),
        (&cert, &none, None, "none.pem"),
    ] {
        let error = Tls::load(cert, key, ca.map(|path| path.as_path())).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

//! Certificates, and a server that uses them.

use std::net::TcpStream;

use leasehold_testkit::resp::Connection;
use leasehold_testkit::{Certificates, RedisServer};

#[test]
fn all_files_are_pem_and_differ() {
    let certificates = Certificates::generate();
    let mut texts: Vec<String> = [
        certificates.ca(),
        certificates.wrong_ca(),
        certificates.server_cert(),
        certificates.client_cert(),
        certificates.wrong_client_cert(),
        certificates.server_key(),
        certificates.client_key(),
        certificates.wrong_client_key(),
    ]
    .iter()
    .map(|path| std::fs::read_to_string(path).unwrap())
    .collect();
    assert!(texts[..5].iter().all(|text| text.starts_with("-----BEGIN CERTIFICATE-----")));
    assert!(texts[5..].iter().all(|text| text.starts_with("-----BEGIN PRIVATE KEY-----")));
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 8);
}

#[test]
fn files_live_as_long_as_the_last_clone() {
    let certificates = Certificates::generate();
    let clone = certificates.clone();
    drop(certificates);
    assert!(clone.ca().is_file());
    let path = clone.ca();
    drop(clone);
    assert!(!path.exists());
}

#[test]
fn a_tls_server_listens_and_speaks_no_plain_text() {
    let certificates = Certificates::generate();
    let builder = RedisServer::builder().tls(&certificates).require_client_certificate();
    let Some(server) = builder.start_or_skip() else { return };
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}", server.port()));
    // Stays open: the server notes one that hangs up.
    let _open = TcpStream::connect(server.addr()).unwrap();
    assert!(!server.log().contains("Failed") && !server.log().contains("Error"), "{}", server.log());
    assert_eq!(server.cli(&["CONFIG", "GET", "tls-auth-clients"]).list()[1].text(), "yes");

    let plain = Connection::tcp(server.addr()).and_then(|mut connection| connection.ping());
    assert!(plain.is_err(), "{plain:?}");
    server.restart();
    assert_eq!(server.cli(&["PING"]).text(), "PONG");
}

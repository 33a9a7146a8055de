//! TLS. The certificates are those of `scripts/golden/tls.sh`.

use super::{Server, drawing, trained};
use crate::support::{Place, repository};
use std::io::{Read, Write};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Puts a certificate of `scripts/golden/tls.sh` and its key into a place.
fn put(place: &Place, certificate: &str, key: &str) {
    for (file, name) in [(format!("{certificate}.pem"), "certificate.pem"), (format!("{key}-key.pem"), "key.pem")] {
        place.write(name, std::fs::read(repository("tests/golden/tls").join(file)).unwrap());
    }
}

/// Who trusts that certificate, and makes a connection for each request.
fn trusting(certificate: &str) -> ureq::Agent {
    let file = repository("tests/golden/tls").join(format!("{certificate}.pem"));
    let known = Certificate::from_pem(&std::fs::read(file).unwrap()).unwrap();
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[known])).build();
    let config = ureq::Agent::config_builder().tls_config(tls).max_idle_connections(0).http_status_as_error(false);
    config.timeout_global(Some(super::PATIENCE)).build().into()
}

fn ask(agent: &ureq::Agent, server: &Server) -> Result<Vec<u8>, ureq::Error> {
    let url = format!("https://{}/predict?top=10", server.address);
    let mut answer = agent.post(url).header("Content-Type", "image/png").send(&drawing(1).0[..])?;
    assert_eq!(answer.status(), 200);
    answer.body_mut().read_to_vec()
}

#[test]
fn a_connection_is_secret_and_its_answer_the_same() {
    let place = trained();
    let plain = Server::start(&place, "r");
    let expected = plain.image("/predict?top=10", &drawing(1).0).body;
    drop(plain);
    put(&place, "first", "first");
    let server = Server::start(&place, "r --tls-cert certificate.pem --tls-key key.pem --receive-timeout 1");
    let (first, second) = (trusting("first"), trusting("second"));
    assert_eq!(ask(&first, &server).unwrap(), expected);
    assert!(ask(&second, &server).is_err(), "a certificate that the client does not know");
    // Who speaks plainly, breaks off or says nothing gets no answer, and keeps no connection.
    for bytes in [&b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"\x16\x03\x01", b""] {
        let mut stream = server.connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{:?}", answer.escape_ascii().to_string());
    }
    assert_eq!(ask(&first, &server).unwrap(), expected);
    // Another certificate is taken while the server runs; one that is broken is not.
    std::fs::write(place.path("key.pem"), "nonsense").unwrap();
    server.signal(libc::SIGHUP);
    server.until("it says so", || server.log().contains("error: the certificate that was read before goes on"));
    assert_eq!(ask(&first, &server).unwrap(), expected);
    put(&place, "second", "second");
    server.signal(libc::SIGHUP);
    server.until("it is read", || ask(&second, &server).is_ok());
    assert!(ask(&first, &server).is_err());
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn certificates_and_keys_fit() {
    let place = trained();
    put(&place, "first", "second");
    place.write("empty.pem", "");
    for (args, code, part) in [
        ("--tls-cert certificate.pem --tls-key key.pem", 1, "do not fit"),
        ("--tls-cert empty.pem --tls-key key.pem", 1, "`empty.pem` has no certificate in PEM"),
        ("--tls-cert certificate.pem --tls-key empty.pem", 1, "`empty.pem` has no private key in PEM"),
        ("--tls-cert nowhere.pem --tls-key key.pem", 1, "nowhere.pem"),
        ("--tls-cert certificate.pem", 2, "--tls-key"),
        ("--tls-key key.pem", 2, "--tls-cert"),
    ] {
        let message = place.fails(&format!("serve r --port 0 {args}"), code);
        assert!(message.contains(part), "{args}: {message}");
    }
}

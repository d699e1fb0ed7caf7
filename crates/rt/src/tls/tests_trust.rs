//! Tests of the trust in certificates of any version, between both ends of a socket pair.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};

use super::tests::{block_on, pair_for, pem_of};
use super::*;

/// A certificate of version 1 for the common name `localhost` (openssl x509 -req -signkey), valid to 2126.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBQjCB6QIUORPQQV0gdwls9jW4LmWQAlcdg5QwCgYIKoZIzj0EAwIwIzENMAsG
A1UECgwEd2VpcjESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNzIxMDIxNloY
DzIxMjYxMTAzMjEwMjE2WjAjMQ0wCwYDVQQKDAR3ZWlyMRIwEAYDVQQDDAlsb2Nh
bGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASIwdx0+Qx3mRRbzU8La/6S
fCgVQROovvPmaSzZ5o8NYbBwjbI56PH/7H3uZjjejBEJpRDy64rzYZNozC2ytZiY
MAoGCCqGSM49BAMCA0gAMEUCIQDqop3FW4LqaqMZ3pDGsYMQ3Mik3b++tJ1NpnwM
RVw9hQIgVnLufVSQyIm4dr2IOpYj/IQ0eFjeV1LKnXHOe7hOeWo=
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRKcgkWPV78IuSIQf
lr3AyeadKLZykiRBarmkT53FZzOhRANCAASIwdx0+Qx3mRRbzU8La/6SfCgVQROo
vvPmaSzZ5o8NYbBwjbI56PH/7H3uZjjejBEJpRDy64rzYZNozC2ytZiY
-----END PRIVATE KEY-----
";

/// Directory with the PEM files of a test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn self_signed(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> PathBuf {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.write(
            name,
            &(pem_of("CERTIFICATE", certificate.der()) + &pem_of("PRIVATE KEY", &key.serialize_der())),
        )
    }
}

fn server(path: &Path, change: impl FnOnce(&mut ServerTlsOptions)) -> ServerTls {
    let files = CertificateFiles { certificate: path.into(), key: path.into(), ocsp: None };
    let mut options = ServerTlsOptions { certificates: vec![files], ..ServerTlsOptions::default() };
    change(&mut options);
    ServerTls::new(&options).unwrap()
}

fn client(verification: Verification, version: TlsVersion) -> ClientTlsOptions {
    ClientTlsOptions {
        verification,
        version_min: version,
        version_max: version,
        ..ClientTlsOptions::default()
    }
}

/// Makes a handshake; returns the fault of either end.
fn handshake(server: &ServerTls, client: &ClientTlsOptions, name: &str) -> Result<(), String> {
    let client = ClientTls::new(client).unwrap();
    block_on(async {
        let (mut near, mut far) = pair_for(server, &client, name);
        let (near_end, far_end) = tokio::join!(
            std::future::poll_fn(|cx| near.poll_handshake(cx)),
            std::future::poll_fn(|cx| far.poll_handshake(cx))
        );
        far_end.and(near_end).map_err(|error| error.to_string())
    })
}

const VERSIONS: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];

#[test]
fn a_certificate_of_version_1_serves_clients_that_trust_it_or_verify_nothing() {
    let files = Files::new();
    let path = files.write("v1.pem", VERSION_1);
    let server = server(&path, |_| {});
    for version in VERSIONS {
        for verification in [Verification::Off, Verification::CaFile(path.clone())] {
            assert_eq!(
                handshake(&server, &client(verification, version), "localhost"),
                Ok(()),
                "{version:?}"
            );
        }
        let other = handshake(&server, &client(Verification::CaFile(path.clone()), version), "a.test");
        let text = other.unwrap_err();
        assert!(text.contains("it is for localhost, not for a.test"), "{text}");
        let stranger = files.self_signed("other.pem", |_| {});
        let untrusted = handshake(&server, &client(Verification::CaFile(stranger), version), "localhost");
        let text = untrusted.unwrap_err();
        assert!(text.contains("X.509 version 1") && text.contains("openssl req"), "{text}");
    }
}

#[test]
fn a_certificate_that_is_itself_trusted_may_be_an_authority() {
    let files = Files::new();
    let authority = |params: &mut CertificateParams| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let path = files.self_signed("own.pem", authority);
    // Another certificate with the same name is not the trusted one.
    let other = files.self_signed("other.pem", authority);
    let leaf = files.self_signed("leaf.pem", |_| {});
    let stranger = files.self_signed("stranger.pem", |params| {
        params.distinguished_name.push(DnType::CommonName, "stranger");
    });
    for version in VERSIONS {
        let trusting = |ca: &Path| client(Verification::CaFile(ca.into()), version);
        assert_eq!(handshake(&server(&path, |_| {}), &trusting(&path), "localhost"), Ok(()));
        assert_eq!(handshake(&server(&leaf, |_| {}), &trusting(&leaf), "localhost"), Ok(()));
        for (own, ca, name, part) in [
            (&path, &path, "a.test", "it is for localhost, not for a.test"),
            (&leaf, &leaf, "127.0.0.1", "it is for localhost, not for 127.0.0.1"),
            (&path, &other, "localhost", "CA:TRUE"),
            (&leaf, &other, "localhost", "a signature does not match its key"),
            (&leaf, &stranger, "localhost", "no trusted authority issued it"),
        ] {
            let text = handshake(&server(own, |_| {}), &trusting(ca), name).unwrap_err();
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn a_trusted_certificate_has_its_times_its_purpose_and_its_names() {
    let files = Files::new();
    let expired = files.self_signed("expired.pem", |params| {
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    let early = files.self_signed("early.pem", |params| params.not_before = rcgen::date_time_ymd(2099, 1, 1));
    let for_clients = files.self_signed("client.pem", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let for_all = files.self_signed("any.pem", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
    });
    let without_names = |files: &Files, name: &str, common_name: &str| {
        files.self_signed(name, |params| {
            params.subject_alt_names.clear();
            params.distinguished_name.push(DnType::CommonName, common_name);
        })
    };
    let wildcard = without_names(&files, "wildcard.pem", "*.a.test");
    let address = without_names(&files, "address.pem", "127.0.0.1");
    for (path, name, expected) in [
        (&expired, "localhost", Err("it expired ")),
        (&early, "localhost", Err("it is valid only in ")),
        (&for_clients, "localhost", Err("extended key usage serverAuth")),
        (&for_all, "localhost", Ok(())),
        (&wildcard, "b.a.test", Ok(())),
        (&wildcard, "a.test", Err("it is for *.a.test, not for a.test")),
        (&wildcard, "c.b.a.test", Err("not for c.b.a.test")),
        (&address, "127.0.0.1", Ok(())),
        (&address, "127.0.0.2", Err("not for 127.0.0.2")),
    ] {
        let trusting = client(Verification::CaFile(path.clone()), TlsVersion::Tls13);
        let result = handshake(&server(path, |_| {}), &trusting, name);
        match (&result, expected) {
            (Ok(()), Ok(())) => {}
            (Err(text), Err(part)) => assert!(text.contains(part), "{}: {text}", path.display()),
            _ => panic!("{}: {result:?}", path.display()),
        }
        // Without verification all of them are accepted, also for another name.
        let any = client(Verification::Off, TlsVersion::Tls13);
        assert_eq!(handshake(&server(path, |_| {}), &any, "other.test"), Ok(()));
    }
}

#[test]
fn a_client_certificate_that_is_itself_trusted_needs_no_issuer() {
    let files = Files::new();
    let own = files.self_signed("server.pem", |_| {});
    let version_1 = files.write("v1.pem", VERSION_1);
    let authority = files.self_signed("authority.pem", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    let for_servers = files.self_signed("for-servers.pem", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    for (path, ca, is_accepted) in [
        (&version_1, &version_1, true),
        (&authority, &authority, true),
        (&authority, &version_1, false),
        (&version_1, &authority, false),
        (&for_servers, &for_servers, false),
    ] {
        let server = server(&own, |options| options.client_ca = Some(ca.clone()));
        let files = CertificateFiles { certificate: path.clone(), key: path.clone(), ocsp: None };
        let options =
            ClientTlsOptions { certificate: Some(files), ..client(Verification::Off, TlsVersion::Tls12) };
        let result = handshake(&server, &options, "localhost");
        assert_eq!(result.is_ok(), is_accepted, "{} {}: {result:?}", path.display(), ca.display());
    }
}

#[test]
fn a_common_name_selects_a_certificate_without_other_names() {
    let files = Files::new();
    let version_1 = files.write("v1.pem", VERSION_1);
    assert_eq!(certificate_names(&version_1).unwrap(), ["localhost"]);
    let named = files.self_signed("named.pem", |params| {
        params.distinguished_name.push(DnType::CommonName, "a.test");
    });
    assert_eq!(certificate_names(&named).unwrap(), ["localhost"], "the names count, not the common name");
    for title in ["weir test", "127.0.0.1"] {
        let titled = files.self_signed("titled.pem", |params| {
            params.subject_alt_names.clear();
            params.distinguished_name.push(DnType::CommonName, title);
        });
        assert!(certificate_names(&titled).unwrap().is_empty(), "{title}");
    }
}

#[test]
fn unusable_keys_and_certificates_are_explained() {
    let files = Files::new();
    let good = files.self_signed("good.pem", |_| {});
    let other = files.self_signed("other.pem", |_| {});
    let version_1 = files.write("v1.pem", VERSION_1);
    let text = std::fs::read_to_string(&good).unwrap();
    let encrypted = text.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let garbage = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let cut = &VERSION_1[..VERSION_1.find("-----END CERT").unwrap()];
    for (certificate, key, part) in [
        (good.clone(), other.clone(), "this key does not belong to the certificate in "),
        (version_1, other, "this key does not belong to the certificate in "),
        (good.clone(), files.write("encrypted.key", &encrypted), "openssl pkey -in "),
        (files.write("garbage.pem", garbage), good.clone(), "not one in DER"),
        (files.write("cut.pem", cut), good.clone(), "it is cut off: the line -----END CERTIFICATE"),
        (good.clone(), files.write("none.key", "nothing\n"), "no private key in PEM format"),
    ] {
        let failure = certificates::read_certified_key(&certificate, &key).unwrap_err();
        assert!(failure.reason.contains(part), "{failure}");
    }
}

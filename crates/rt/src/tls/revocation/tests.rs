//! Revocation lists of files.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use super::super::tests::pem_of;
use super::*;

/// Returns the parameters of an authority with this name.
fn authority(name: &str) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Issuer::new(params, KeyPair::generate().unwrap())
}

fn list_of(issuer: &Issuer<'static, KeyPair>, issued_year: i32, serials: &[u64]) -> Vec<u8> {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(issued_year, 1, 1),
        next_update: date_time_ymd(issued_year + 1, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().der().to_vec()
}

fn write(home: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = home.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn options(files: Vec<PathBuf>) -> RevocationOptions {
    RevocationOptions { files, ..RevocationOptions::default() }
}

#[test]
fn lists_of_files_in_pem_and_der_are_read_the_newest_first() {
    let home = tempfile::tempdir().unwrap();
    let (a, b) = (authority("a"), authority("b"));
    let both = pem_of("X509 CRL", &list_of(&a, 2030, &[1])) + &pem_of("X509 CRL", &list_of(&b, 2031, &[]));
    let files =
        vec![write(&home, "both.pem", both.as_bytes()), write(&home, "a.der", &list_of(&a, 2040, &[7]))];
    let lists = RevocationLists::read(&options(files)).unwrap();
    let found: Vec<_> = lists.infos().map(|info| (&*info.issuer, info.next_update_s)).collect();
    let year_start_s = |year: i32| date_time_ymd(year, 1, 1).unix_timestamp() as u64;
    let names = ["CN=a", "CN=b", "CN=a"];
    assert!(found.iter().zip(names).all(|((issuer, _), name)| issuer.ends_with(name)), "{found:?}");
    assert_eq!(found.iter().map(|info| info.1).collect::<Vec<_>>(), [2041, 2032, 2031].map(year_start_s));
    assert_eq!(lists.sessions_end_s(), Some(year_start_s(2031)));
    let lenient = RevocationLists {
        options: RevocationOptions { allows_expired: true, ..lists.options.clone() },
        ..lists
    };
    assert_eq!(lenient.sessions_end_s(), None);
}

#[test]
fn every_file_at_fault_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let whole = pem_of("X509 CRL", &list_of(&authority("a"), 2030, &[1]));
    let long = write(&home, "long", b"");
    std::fs::File::options().write(true).open(&long).unwrap().set_len(BYTES_MAX + 1).unwrap();
    for (name, bytes, part) in [
        ("empty", &b""[..], "no revocation list"),
        ("text", b"hello", "no revocation list"),
        ("der", b"\x30\x03\x02\x01\x01", "cannot be parsed"),
        ("half", &whole.as_bytes()[..whole.len() / 2], "cut off"),
    ] {
        let files = vec![write(&home, name, bytes), long.clone(), "/no/such/file".into()];
        let faults = RevocationLists::read(&options(files)).unwrap_err();
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert!(texts[0].contains(part), "{texts:?}");
        assert!(texts[1].contains("longer than 8 MiB") && texts[2].contains("No such file"), "{texts:?}");
    }
}

#[test]
fn expired_lists_and_authorities_without_one_are_warned_of() {
    let home = tempfile::tempdir().unwrap();
    let (a, b) = (authority("a"), authority("b"));
    let path = write(&home, "a", &list_of(&a, 2020, &[]));
    let mut lists = RevocationLists::read(&options(vec![path])).unwrap();
    let certificate = |issuer: &Issuer<'static, KeyPair>, name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().to_vec()
    };
    let authorities = [certificate(&a, "a"), certificate(&b, "b")];
    let warnings = |lists: &RevocationLists, year: i32| {
        let now_s = date_time_ymd(year, 6, 1).unix_timestamp() as u64;
        let warnings = lists.warnings(authorities.iter().map(Vec::as_slice), now_s);
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let current = warnings(&lists, 2020);
    assert!(
        current.len() == 1 && current[0].contains("no revocation list of the authority CN=b"),
        "{current:?}"
    );
    let expired = warnings(&lists, 2021);
    assert!(expired.len() == 2 && expired[0].contains("are refused: renew it"), "{expired:?}");
    lists.options = RevocationOptions { allows_unknown: true, allows_expired: true, ..lists.options };
    let lenient = warnings(&lists, 2021);
    assert!(lenient.len() == 1 && lenient[0].contains("it is still used"), "{lenient:?}");
}

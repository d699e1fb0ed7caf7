//! Records and key files of DNS-01.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::plan::TsigAlgorithm;

#[test]
fn the_record_of_a_wildcard_is_that_of_the_name_below_it() {
    for domain in ["a.test", "*.a.test"] {
        assert_eq!(TxtRecord::from_domain(domain, "x".into()).name, "_acme-challenge.a.test");
    }
}

#[test]
fn a_key_file_that_others_can_write_is_not_read() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("key");
    std::fs::write(&path, "AQIDBAUGBwgJCgsMDQ4PEA==\n").unwrap();
    let source = TsigKeySource::Secret {
        name: "weir".into(),
        algorithm: TsigAlgorithm::HmacSha256,
        file: path.clone(),
    };
    let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o600, 0o644, 0o400] {
        set_mode(mode);
        assert!(read_tsig_key(&source).is_ok(), "{mode:o}");
    }
    for mode in [0o620, 0o602] {
        set_mode(mode);
        let text = read_tsig_key(&source).unwrap_err().to_string();
        assert!(text.contains("others can write it"), "{text}");
    }
    set_mode(0o600);
    let text = read_tsig_key(&TsigKeySource::File(path)).unwrap_err().to_string();
    assert!(text.contains("tsig-keygen"), "{text}");
    let text = read_tsig_key(&TsigKeySource::File(home.path().into())).unwrap_err().to_string();
    assert!(text.contains("not a file"), "{text}");
}

//! Records and key files of DNS-01.

use super::*;

#[test]
fn the_record_of_a_wildcard_is_that_of_the_name_below_it() {
    for domain in ["a.test", "*.a.test"] {
        assert_eq!(TxtRecord::from_domain(domain, "x".into()).name, "_acme-challenge.a.test");
    }
}

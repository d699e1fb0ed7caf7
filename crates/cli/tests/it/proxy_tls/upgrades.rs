//! Sessions across a takeover: the new process resumes those of the old one.

use serde_json::json;

use super::authority::{Authority, KeyType};
use super::client::{TlsClient, connect};
use crate::support::proxy_under_test::{ProxyUnderTest, StartOptions};
use crate::support::{EVENT_TIMEOUT, shared_machine, temp_dir};

#[test]
fn the_new_process_resumes_the_sessions_of_the_old_one() {
    let _shared = shared_machine();
    let Some(authority) = Authority::create() else { return };
    authority.issue("a.pem", KeyType::Ecdsa, &["a.test"]);
    let directory = temp_dir();
    let control = directory.path().join("weir.sock").display().to_string();
    let config = |more: &str| {
        format!(
            "threads = 1\ncontrol = {control:?}\ndrain-timeout = \"5s\"\n[listener.web]\n\
             bind = \"127.0.0.1:0\"\ntls = {{ certificates = [{:?}]{more} }}\n\
             [[route]]\nreturn = {{ status = 200, body = \"x\" }}\n",
            authority.file("a.pem")
        )
    };
    let mut old = ProxyUnderTest::weir(&config(""));
    let (mut client, ca, port) = (TlsClient::start(), authority.file("ca.pem"), old.port());
    let mut session = |id: &str, version: &str, resumes: &str| {
        let settings = json!({ "version": version, "resumes": resumes });
        let resumed = client.run(&connect(id, port, &ca, "a.test", settings))["resumed"].clone();
        assert_eq!(client.get(id, "/")["status"], 200);
        resumed
    };
    for version in ["1.2", "1.3"] {
        assert_eq!(session(version, version, ""), false);
    }
    let start_successor = |config: &str| {
        let flags = ["--upgrade-from", &control];
        ProxyUnderTest::weir_with_options(config, &StartOptions { flags: &flags, ..StartOptions::default() })
    };
    let mut new = start_successor(&config(""));
    assert_eq!(old.process.wait(EVENT_TIMEOUT), 0, "{}", old.stderr());
    assert_eq!(new.port(), port);
    for version in ["1.2", "1.3"] {
        assert_eq!(session("resumed", version, version), true, "{version}");
    }
    // A process that accepts other clients resumes none: nothing would verify them.
    let _stricter = start_successor(&config(&format!(
        ", client-ca = {ca:?}, client-certificate = \"optional\"",
        ca = authority.file("ca.pem")
    )));
    assert_eq!(new.process.wait(EVENT_TIMEOUT), 0, "{}", new.stderr());
    for version in ["1.2", "1.3"] {
        assert_eq!(session("verified", version, version), false, "{version}");
    }
}

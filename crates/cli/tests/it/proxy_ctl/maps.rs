//! Maps: their entries, changes in memory, and reads of their files.

use super::*;
use crate::support::client::Client;
use crate::support::shared_machine;

fn value(proxy: &ProxyUnderTest, host: &str) -> String {
    let mut client = Client::connect(proxy.authority());
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    let response = client.read_response().expect("a response");
    String::from_utf8(response.body).unwrap()
}

#[test]
fn entries_are_shown_and_changed_while_the_proxy_runs() {
    let _shared = shared_machine();
    let directory = tempfile::tempdir().unwrap();
    let (map, list) = (directory.path().join("hosts.map"), directory.path().join("networks"));
    std::fs::write(&map, "example.org one\n*.example.org below\n").unwrap();
    std::fs::write(&list, "10.0.0.0/8\n").unwrap();
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 2\ncontrol = 'HOME/weir.sock'\nadmin = '127.0.0.1:0'\n[listener.web]\nbind = '127.0.0.1:0'\n\
         [map.hosts]\nkey = 'host'\nfile = '{}'\nmatch = 'domain'\n[map.own]\nkey = 'path'\nentries = {{ a = '1' }}\n\
         [[route]]\nwhen = {{ source-file = '{}' }}\ndeny = true\n\
         [[route]]\nreturn = {{ body-template = '{{map.hosts:-none}}' }}\n",
        map.display(),
        list.display()
    ));
    let maps = ctl_json(&proxy, "map list")["maps"].clone();
    let hosts = find_row(&maps, "name", "hosts");
    assert_eq!(
        (&hosts["match"], &hosts["entries"], &hosts["loads"]),
        (&"domain".into(), &2.into(), &1.into())
    );
    assert_eq!(find_row(&maps, "name", list.to_str().unwrap())["match"], "network");
    let shown = ctl_output(&proxy, "map show hosts");
    assert!(shown.contains("*.example.org") && shown.contains("below"), "{shown}");
    assert!(ctl_output(&proxy, "map show hosts x.example.org").contains("below"));
    assert!(run_ctl(&proxy, "map show hosts other.test").stderr.contains("no entry that matches"));

    assert!(ctl_output(&proxy, "map set hosts example.org two words").contains("until"));
    ctl_output(&proxy, "map set hosts New.test new");
    ctl_output(&proxy, "map delete hosts *.example.org");
    for (host, expected) in [
        ("example.org", "two words"),
        ("x.example.org", "two words"),
        ("a.new.test", "new"),
        ("x.test", "none"),
    ] {
        assert_eq!(value(&proxy, host), expected, "{host}");
    }
    assert_eq!(find_row(&ctl_json(&proxy, "map list")["maps"], "name", "hosts")["changes"], 3);
    // A reload of the config keeps them; reading the file again does not.
    ctl_output(&proxy, "reload");
    assert_eq!(value(&proxy, "new.test"), "new");
    assert!(ctl_output(&proxy, "map reload hosts").contains("2 entries"));
    assert_eq!((value(&proxy, "new.test"), value(&proxy, "x.example.org")), ("none".into(), "below".into()));

    for (words, part) in [
        ("map", "invalid command 'map'"),
        ("map set hosts", "invalid command"),
        ("map set hots a.test 1", "unknown map 'hots' (did you mean 'hosts'?)"),
        ("map set hosts a/b 1", "'a/b' is not a name"),
        ("map delete hosts a.test", "no entry 'a.test'"),
        ("map reload own", "has no file"),
        ("map set own b 2", ""),
    ] {
        let output = run_ctl(&proxy, words);
        assert_eq!(output.code == 0, part.is_empty(), "{words}: {} {}", output.stdout, output.stderr);
        assert!(output.stderr.contains(part), "{words}: {}", output.stderr);
    }
    std::fs::write(&map, "example.org\x02 x\n").unwrap();
    let refused = run_ctl(&proxy, "map reload hosts");
    assert!(
        refused.code != 0 && refused.stderr.contains("hosts.map:1:12: a control character"),
        "{}",
        refused.stderr
    );
    assert_eq!(value(&proxy, "example.org"), "one");
}

//! Changes that outlive a reload and a restart: the state file, percentages with a name, and servers of a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::support::client::Client;
use crate::support::faulty_origins::echoing_server;
use crate::support::{shared_machine, temp_dir, within};

/// A config with the keys at the top, and the servers `a` and `b`.
fn config_with(top: &str, servers: &[&ScriptedServer]) -> String {
    let addresses: Vec<&str> = servers.iter().map(|server| server.authority.as_str()).collect();
    format!("{top}\n{}", config(&addresses))
}

/// Returns the server of each of so many users.
fn servers_of_users(proxy: &ProxyUnderTest, users: usize) -> Vec<char> {
    let mut client = Client::connect(proxy.authority());
    (0..users)
        .map(|user| {
            let response = client.get_with_fields("/", &format!("Host: t\r\nCookie: user=u{user}\r\n"));
            assert_eq!(response.status, 200, "{}", response.head);
            if response.head.contains("x-side: new") { 'n' } else { 'o' }
        })
        .collect()
}

#[test]
fn changes_are_made_again_by_the_next_process() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let state = directory.path().join("state");
    let (a, b, c) = (echoing_server("a"), echoing_server("b"), echoing_server("c"));
    let top = format!("state-file = \"{}\"", state.display());
    let routes = "[[route]]\nwhen = { percent = 10, key = 'cookie.user', name = 'canary' }\npool = 'app'\n\
                  [pool.other]\nservers = ['127.0.0.1:9']\n[[route]]\npath = '/other'\npool = 'other'\n";
    let text = format!("{}{routes}", config_with(&top, &[&a, &b]));
    let first = ProxyUnderTest::weir(&text);
    for change in [
        "server app/a drain",
        "server app/b weight 7",
        "server app/b maxconn 9",
        &format!("server app/c add {} weight 3 backup", c.authority),
        "server app/c weight 5",
        "pool other maint",
        "percent canary 33.5",
    ] {
        ctl_output(&first, change);
    }
    let rows = |proxy: &ProxyUnderTest| {
        ["app/a", "app/b", "app/c", "other/127.0.0.1:9"].map(|name| {
            let row = server_row(proxy, name);
            ["state", "weight", "maxconn", "weight_configured"]
                .map(|column| row[column].to_string())
                .join(" ")
        })
    };
    let before = rows(&first);
    drop(first);
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);
    let second = ProxyUnderTest::weir(&text);
    assert_eq!(rows(&second), before);
    let percents = ctl_json(&second, "percent");
    assert_eq!(find_row(&percents["percents"], "name", "canary")["percent"], 33.5);
    assert!(!second.stderr().contains("warning"), "{}", second.stderr());
    // What is taken back does not come again, and the file has only its heading then.
    for change in [
        "server app/a ready",
        "server app/b weight default",
        "server app/b maxconn default",
        "server app/c remove",
        "pool other ready",
        "percent canary default",
    ] {
        ctl_output(&second, change);
    }
    let left = fs::read_to_string(&state).unwrap();
    assert!(left.lines().all(|line| line.starts_with('#')), "{left}");
}

#[test]
fn lines_that_do_not_fit_are_reported_and_others_count() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let state = directory.path().join("state");
    let a = echoing_server("a");
    let b = echoing_server("b");
    let text = config_with(&format!("state-file = \"{}\"", state.display()), &[&a, &b]);
    fs::write(&state, "# kept\n\nserver app/x drain\nserver app/a drain\nreload\nserver app/b weight 999\n")
        .unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o600)).unwrap();
    let proxy = ProxyUnderTest::weir(&text);
    assert_eq!(server_row(&proxy, "app/a")["state"], "drain");
    let stderr = proxy.stderr();
    for part in
        ["state:3: unknown server 'x'", "state:5: 'reload' is not a change", "state:6: '999' is not a weight"]
    {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let kept = fs::read_to_string(&state).unwrap();
    assert!(kept.ends_with("\nserver app/a drain\n") && kept.lines().count() == 2, "{kept}");
    drop(proxy);
    // Whoever can write the file could change the servers of the proxy.
    fs::write(&state, "server app/a drain\n").unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o666)).unwrap();
    let proxy = ProxyUnderTest::weir(&text);
    assert_eq!(server_row(&proxy, "app/a")["state"], "no check");
    assert!(proxy.stderr().contains("others can write it"), "{}", proxy.stderr());
}

#[test]
fn a_change_that_cannot_be_kept_is_said() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let a = echoing_server("a");
    let text = config_with(&format!("state-file = \"{}\"", inner.join("state").display()), &[&a]);
    let proxy = ProxyUnderTest::weir(&text);
    fs::remove_dir_all(&inner).unwrap();
    let output = run_ctl(&proxy, "server app/a drain");
    assert!(output.code != 0 && output.stderr.contains("only until this process ends"), "{output:?}");
    assert_eq!(server_row(&proxy, "app/a")["state"], "drain");
}

#[test]
fn a_percentage_is_changed_while_requests_flow() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let routes = "[[route]]\nwhen = { percent = 0, key = 'cookie.user', name = 'kept-canary' }\n\
                  set-response-header = { x-side = 'new' }\npool = 'app'\n";
    let text = format!("{}{routes}", config(&[&a.authority]));
    let proxy = ProxyUnderTest::weir(&text);
    let count = |sides: &[char]| sides.iter().filter(|side| **side == 'n').count();
    assert_eq!(count(&servers_of_users(&proxy, 100)), 0);
    ctl_output(&proxy, "percent kept-canary 30");
    let some = servers_of_users(&proxy, 200);
    assert!((30..=90).contains(&count(&some)), "{}", count(&some));
    assert_eq!(servers_of_users(&proxy, 200), some, "a user changed sides");
    ctl_output(&proxy, "percent kept-canary 60");
    let more = servers_of_users(&proxy, 200);
    assert!(some.iter().zip(&more).all(|(before, now)| *before == 'o' || *now == 'n'), "a user went back");
    // A reload keeps it.
    ctl_output(&proxy, "reload");
    assert_eq!(servers_of_users(&proxy, 200), more);
    for (command, part) in [
        ("percent kept-canary 101", "not a percentage"),
        ("percent kept-canari 1", "did you mean 'kept-canary'?"),
        ("percent kept-canary", "write `percent`"),
    ] {
        let output = run_ctl(&proxy, command);
        assert!(output.code == 2 && output.stderr.contains(part), "{command}: {output:?}");
    }
    ctl_output(&proxy, "percent kept-canary default");
    assert_eq!(count(&servers_of_users(&proxy, 100)), 0);
}

#[test]
fn servers_of_a_file_follow_it() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let file = directory.path().join("app.servers");
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let write = |text: String| {
        let new = directory.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
    };
    write(format!("{} name=a\n", a.authority));
    let text = format!("{CONFIG_HEAD}[pool.app]\nservers-file = \"{}\"\n", path_text(&file));
    let proxy = ProxyUnderTest::weir(&text);
    assert_eq!(proxy.get("/").status, 200);
    write(format!("{} name=a\n{} name=b weight=3 # new\n", a.authority, b.authority));
    let servers = || -> Vec<String> {
        let all = ctl_json(&proxy, "show servers");
        let rows = all["servers"].as_array().unwrap();
        rows.iter().map(|row| row["server"].as_str().unwrap().to_owned()).collect()
    };
    assert!(within(EVENT_TIMEOUT, || servers() == ["app/a", "app/b"]), "{:?}", servers());
    assert_eq!(server_row(&proxy, "app/b")["weight_configured"], 3);
    // Neither faults nor an empty file change anything.
    write("127.0.0.1\nx y\n".to_owned());
    assert!(within(EVENT_TIMEOUT, || proxy.stderr().contains("app.servers:2: ")), "{}", proxy.stderr());
    write(String::new());
    assert!(
        within(EVENT_TIMEOUT, || proxy.stderr().contains("app.servers: no server")),
        "{}",
        proxy.stderr()
    );
    assert_eq!(servers(), ["app/a", "app/b"]);
    write(format!("{} name=b\n", b.authority));
    assert!(within(EVENT_TIMEOUT, || servers() == ["app/b"]), "{:?}", servers());
    assert_eq!(proxy.get("/").status, 200);
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

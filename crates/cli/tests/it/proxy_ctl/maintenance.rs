//! `weir ctl maintenance on --body FILE`: the page for clients, what it leaves alone, and how long it stays.

use std::fs;

use super::*;
use crate::support::client::Client;
use crate::support::faulty_origins::{echoing_server, field};
use crate::support::tls_peers::curl;
use crate::support::{shared_machine, temp_dir};

/// Routes to two pools, and routes that respond themselves.
fn routed_config(top: &str, origin: &ScriptedServer) -> String {
    let servers = format!("servers = [\"{}\"]\n", origin.authority);
    format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n{top}\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\n\
         [[route]]\npath = \"/busy\"\nreturn = {{ status = 503, body = \"busy\" }}\n\
         [[route]]\npath = \"/denied\"\ndeny = 503\n\
         [[route]]\nname = \"b\"\npath-prefix = \"/b\"\npool = \"b\"\n\
         [[route]]\nname = \"rest\"\npool = \"a\"\ncompression = {{ codings = [\"gzip\"], min-size = 1 }}\n\
         [pool.a]\n{servers}[pool.b]\n{servers}"
    )
}

struct Page {
    status: u16,
    content_type: String,
    body: String,
    head: String,
}

fn get(proxy: &ProxyUnderTest, path: &str) -> Page {
    let response = Client::connect(proxy.authority()).get(path);
    Page {
        status: response.status,
        content_type: field(&response.head, "content-type").unwrap_or_default(),
        body: String::from_utf8_lossy(&response.body).into_owned(),
        head: response.head,
    }
}

#[test]
fn the_page_of_a_file_is_sent_for_pools_in_maintenance_alone() {
    let _shared = shared_machine();
    let (origin, directory) = (echoing_server("a"), temp_dir());
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let config_page = file("config.html", "page of the config");
    let html = file("page.html", "<p>{back} at noon\n");
    let json = file("body", "{\"back\": \"noon\"}\n");
    let values = file("values.html", "<i>{status} {reason} {method} {route} {pool} {source} {time.unix}</i>");
    let top = format!("[[error-page]]\nstatus = \"503\"\nhtml = \"{config_page}\"\n");
    let proxy = ProxyUnderTest::weir(&routed_config(&top, &origin));
    let printed = ctl_output(&proxy, &format!("maintenance on --body {html}"));
    assert!(printed.contains("2 pools: maint; page: html, 18 bytes"), "{printed}");
    let page = get(&proxy, "/x");
    assert_eq!((page.status, &*page.content_type), (503, "text/html; charset=utf-8"));
    assert_eq!(page.body, "<p>{back} at noon\n");
    assert!(field(&page.head, "retry-after").is_some(), "{}", page.head);
    // Routes that respond themselves do so as before, and a pool that is ready again serves.
    let bodies = ["/busy", "/denied"].map(|path| (get(&proxy, path).status, get(&proxy, path).body));
    assert_eq!(bodies, [(503, "busy".to_owned()), (503, "page of the config".to_owned())]);
    ctl_output(&proxy, "pool b ready");
    assert_eq!((get(&proxy, "/b").status, get(&proxy, "/x").status), (200, 503));
    let shown = ctl_json(&proxy, "maintenance");
    let shown = &shown["maintenance"];
    assert_eq!((&shown["maintenance"], &shown["pools_in_maintenance"]), (&"some pools".into(), &1.into()));
    assert_eq!((&shown["page_form"], &shown["page_bytes"]), (&"html".into(), &18.0.into()), "{shown}");
    // A head alone, HTTP/2, and a coding.
    let mut client = proxy.client();
    client.send(b"HEAD /x HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    let head = String::from_utf8(client.read_to_end()).unwrap();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.ends_with("\r\n\r\n"), "{head}");
    assert_eq!(field(&head, "content-length").as_deref(), Some("18"));
    let url = format!("http://{}/x", proxy.authority());
    let (code, found) = curl(&["--http2-prior-knowledge", "--compressed", "-i", &url]);
    let found = String::from_utf8_lossy(&found).into_owned();
    assert_eq!(code, 0);
    assert!(found.starts_with("HTTP/2 503") && found.ends_with("<p>{back} at noon\n"), "{found}");
    assert!(found.contains("content-encoding: gzip") && found.contains("retry-after: "), "{found}");
    // Another page takes its place; its form is that of its content.
    ctl_output(&proxy, &format!("maintenance on --body {json}"));
    let page = get(&proxy, "/b");
    assert_eq!((&*page.content_type, &*page.body), ("application/json", "{\"back\": \"noon\"}\n"));
    ctl_output(&proxy, &format!("maintenance on --values --body {values}"));
    let page = get(&proxy, "/b");
    let start = "<i>503 Service Unavailable GET b b 127.0.0.1 ";
    assert!(page.body.starts_with(start) && !page.body.contains('{'), "{}", page.body);
    ctl_output(&proxy, "maintenance on");
    assert_eq!(get(&proxy, "/x").body, "page of the config");
    ctl_output(&proxy, &format!("maintenance on --body {html}"));
    ctl_output(&proxy, "maintenance off");
    assert_eq!(get(&proxy, "/x").status, 200);
    let shown = ctl_json(&proxy, "maintenance");
    assert_eq!(
        (&shown["maintenance"]["maintenance"], &shown["maintenance"]["page_form"]),
        (&"off".into(), &Value::Null)
    );
    ctl_output(&proxy, "pool a maint");
    assert_eq!(get(&proxy, "/x").body, "page of the config");
    proxy.assert_all_returned();
}

#[test]
fn the_page_outlives_reloads_and_restarts_until_maintenance_ends() {
    let _shared = shared_machine();
    let (origin, directory) = (echoing_server("a"), temp_dir());
    let state = directory.path().join("state");
    let path = directory.path().join("page.txt");
    fs::write(&path, "back soon ü").unwrap();
    let top = format!("state-file = \"{}\"", state.display());
    let config = routed_config(&top, &origin);
    let proxy = ProxyUnderTest::weir(&config);
    ctl_output(&proxy, &format!("maintenance on --body {}", path.display()));
    // The proxy has the page, and reads no file.
    fs::remove_file(&path).unwrap();
    ctl_output(&proxy, "pool b ready");
    ctl_output(&proxy, "reload");
    proxy.reload(&config.replace("min-size = 1", "min-size = 2"));
    ctl_output(&proxy, "reload");
    let check = |proxy: &ProxyUnderTest| {
        let page = get(proxy, "/x");
        assert_eq!((page.status, &*page.content_type), (503, "text/plain; charset=utf-8"), "{}", page.head);
        assert_eq!((&*page.body, get(proxy, "/b").status), ("back soon ü", 200));
    };
    check(&proxy);
    drop(proxy);
    let proxy = ProxyUnderTest::weir(&config);
    check(&proxy);
    assert!(!proxy.stderr().contains("warning"), "{}", proxy.stderr());
    ctl_output(&proxy, "maintenance off");
    let left = fs::read_to_string(&state).unwrap();
    assert!(left.lines().all(|line| line.starts_with('#')), "{left}");
    drop(proxy);
    // A page that somebody damaged is reported, and the rest counts.
    fs::write(&state, "maintenance page html ???\npool a maint\n").unwrap();
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let proxy = ProxyUnderTest::weir(&config);
    assert_eq!(get(&proxy, "/x").status, 503);
    assert!(proxy.stderr().contains("state:1: 'html' is not a page"), "{}", proxy.stderr());
}

#[test]
fn files_that_are_no_page_are_refused_with_the_reason() {
    let _shared = shared_machine();
    let (origin, directory) = (echoing_server("a"), temp_dir());
    let proxy = start_proxy(&[&origin]);
    let file = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let long = file("long.html", &[b'x'; (64 << 10) + 1]);
    let largest = file("largest.html", &[b'x'; 64 << 10]);
    let empty = file("empty.html", b"");
    let binary = file("binary.html", b"a\n\xff");
    let values = file("values.html", b"<p>{status}\n{path} {nothing}\n{header.x}");
    let missing = directory.path().join("missing").to_str().unwrap().to_owned();
    let inner = directory.path().to_str().unwrap().to_owned();
    for (words, parts) in [
        (format!("maintenance on --body {missing}"), &["missing: no such file"][..]),
        (format!("maintenance on --body {inner}"), &["neither a regular file nor a pipe"]),
        (format!("maintenance on --body {long}"), &["longer than 64 KiB", "move styles and images"]),
        (format!("maintenance on --body {empty}"), &["the page is empty"]),
        (format!("maintenance on --body {binary}"), &["binary.html:2:1: ", "UTF-8"]),
        (
            format!("maintenance on --values --body {values}"),
            &["values.html:2:8: '{nothing}' is not a value"],
        ),
        (format!("maintenance off --body {largest}"), &["--body", "`maintenance on`"]),
        (format!("reload --body {largest}"), &["--body", "`maintenance on`"]),
        ("maintenance on --values".to_owned(), &["needs --body FILE"]),
        ("maintenance now".to_owned(), &["`maintenance on`"]),
    ] {
        let output = run_ctl(&proxy, &words);
        assert_eq!(output.code, 2, "{words}: {output:?}");
        assert!(parts.iter().all(|part| output.stderr.contains(part)), "{words}: {}", output.stderr);
        assert_eq!(proxy.get("/").status, 200);
    }
    ctl_output(&proxy, &format!("maintenance on --body {largest}"));
    assert_eq!(get(&proxy, "/x").body.len(), 64 << 10);
}

#[test]
fn sticky_clients_of_a_split_come_back_to_their_servers_after_maintenance() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let page = directory.path().join("page.html");
    fs::write(&page, "<p>back at noon").unwrap();
    let names = ["stable1", "stable2", "canary1", "canary2"];
    let servers = names.map(echoing_server);
    let pool = |name: &str, servers: &[ScriptedServer]| {
        let servers: Vec<&str> = servers.iter().map(|server| &*server.authority).collect();
        format!(
            "[pool.{name}]\nbalance = \"round-robin\"\nservers = {servers:?}\n\
             sticky = {{ cookie = \"{name}\", key = \"0123456789abcdef\" }}\n"
        )
    };
    let text = |fallback: bool| {
        format!(
            "threads = 1\nadmin = \"127.0.0.1:0\"\ncontrol = \"HOME/weir.sock\"\n\
             [listener.web]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\nsplit = {{ pools = {{ stable = 50, canary = 50 }}, key = \"cookie.user\", fallback = {fallback} }}\n\
             {}{}",
            pool("stable", &servers[..2]),
            pool("canary", &servers[2..])
        )
    };
    let proxy = ProxyUnderTest::weir(&text(true));
    // Each user has a jar: the cookie of the split's key, and those that the pools gave.
    let users = 24;
    let mut jars: Vec<Vec<String>> = (0..users).map(|user| vec![format!("user=u{user}")]).collect();
    let mut client = proxy.client();
    let mut visit = |jar: &mut Vec<String>| {
        let response = client.get_with_fields("/", &format!("Host: t\r\nCookie: {}\r\n", jar.join("; ")));
        if let Some(cookie) = field(&response.head, "set-cookie") {
            let cookie = cookie.split(';').next().unwrap().to_owned();
            let name = cookie.split('=').next().unwrap().to_owned();
            jar.retain(|known| !known.starts_with(&format!("{name}=")));
            jar.push(cookie);
        }
        let body = String::from_utf8(response.body).unwrap();
        (response.status, body.lines().next().unwrap_or_default().to_owned())
    };
    let mut visit_all = || jars.iter_mut().map(&mut visit).collect::<Vec<_>>();
    let before = visit_all();
    assert!(names.iter().all(|name| before.contains(&(200, (*name).to_owned()))), "{before:?}");
    assert_eq!(visit_all(), before, "each user has a server");
    // The users of the canary get the stable pool meanwhile, and keep a server there.
    ctl_output(&proxy, "pool canary maint");
    let meanwhile = visit_all();
    for (before, now) in before.iter().zip(&meanwhile) {
        assert!(now.0 == 200 && now.1.starts_with("stable"), "{now:?}");
        assert!(before.1.starts_with("canary") || before == now, "{before:?} {now:?}");
    }
    assert_eq!(visit_all(), meanwhile);
    ctl_output(&proxy, "pool canary ready");
    assert_eq!(visit_all(), before);
    // Maintenance of all, with a page, takes no cookie away.
    ctl_output(&proxy, &format!("maintenance on --body {}", page.display()));
    assert!(visit_all().iter().all(|(status, body)| (*status, &**body) == (503, "<p>back at noon")));
    ctl_output(&proxy, "maintenance off");
    assert_eq!(visit_all(), before);
    // Without a fallback, the page is for the users of the pool alone.
    proxy.reload(&text(false));
    ctl_output(&proxy, "reload");
    ctl_output(&proxy, &format!("maintenance on --body {}", page.display()));
    ctl_output(&proxy, "pool stable ready");
    for (before, now) in before.iter().zip(visit_all()) {
        match before.1.starts_with("canary") {
            true => assert_eq!(now, (503, "<p>back at noon".to_owned())),
            false => assert_eq!(now, *before),
        }
    }
    ctl_output(&proxy, "maintenance off");
    assert_eq!(visit_all(), before);
    proxy.assert_all_returned();
}

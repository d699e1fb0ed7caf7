//! `weir proxy` and the choice of a server, by what each server got: every algorithm, backups, keys,
//! and clients that stick by a cookie, with curl's own cookie jar. Weights in turn and the default are
//! in `proxy_config/balance` as well. No times are asserted, only who was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use crate::support::client::{Answer, Client};
use crate::support::door::{Door, PATIENCE};
use crate::support::faulty::{Gated, Refusing, answering_each, field, ok, telling};
use crate::support::peers::Scripted;
use crate::support::times::demand;
use crate::support::{beside_others, pause_ms, weir, within};

const STICKY: &str = "weir_sticky_requests_total";
const ELSEWHERE: &str = "weir_hash_elsewhere_total";
const KEY: &str = "a key that only these tests know";

fn config(threads: usize, servers: &str, more: &str) -> String {
    format!(
        "threads = {threads}\nadmin = \"127.0.0.1:0\"\n\
         [[log]]\nto = \"file:HOME/access.json\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [{servers}]\n{more}\n"
    )
}

fn start(threads: usize, servers: &str, more: &str) -> Door {
    Door::weir(&config(threads, servers, more))
}

/// A server by its name, with more keys.
fn server(name: &str, authority: &str, more: &str) -> String {
    format!("{{ name = \"{name}\", address = \"{authority}\"{more} }}")
}

fn servers(all: &[(&str, &Scripted)]) -> String {
    let all = all.iter().map(|(name, one)| server(name, &one.authority, ""));
    all.collect::<Vec<_>>().join(", ")
}

/// One request with these field lines; who answered, and the answer.
fn ask(client: &mut Client, target: &str, fields: &str) -> (String, Answer) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n").as_bytes());
    let answer = client.answer().expect("an answer");
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    (body.lines().next().unwrap_or_default().to_owned(), answer)
}

/// How many of so many requests, one after the other, each server answered.
fn spread(door: &Door, requests: usize, target: &str, fields: &str) -> BTreeMap<String, usize> {
    let mut client = door.client();
    let mut got = BTreeMap::new();
    for _ in 0..requests {
        *got.entry(ask(&mut client, target, fields).0).or_default() += 1;
    }
    got
}

/// A request whose answer is not waited for.
fn send_and_leave_open(door: &Door, fields: &str) -> TcpStream {
    let mut stream = TcpStream::connect(door.authority()).unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: t\r\n{fields}\r\n").as_bytes()).unwrap();
    stream
}

/// What `--explain` says of the config that a door was started with.
fn explained(door: &Door, header: &str) -> String {
    let path = door.file("weir.toml");
    let flags = ["proxy", "--config", path.to_str().unwrap(), "--explain", "/"];
    let output = weir(&[&flags[..], &["--header", header]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    output.stdout
}

/// The server that a key belongs to.
fn owner(door: &Door, header: &str) -> String {
    let said = explained(door, header);
    let line = said.lines().find_map(|line| line.split_once(": belongs to "));
    line.expect(&said).1.to_owned()
}

#[test]
fn every_balance_asks_all_and_weights_are_shares() {
    let _shared = beside_others();
    let (a, b, none) = (telling("a"), telling("b"), telling("none"));
    let weighted = [
        server("a", &a.authority, ", weight = 3"),
        server("b", &b.authority, ""),
        server("none", &none.authority, ", weight = 0"),
    ];
    for balance in ["random-of-two", "least-connections", "consistent-hash", "latency"] {
        // A key by a field that nobody sends: without one a hash is the better of two.
        let more = format!("balance = \"{balance}\"\nhash = {{ key = \"header:x-none\" }}");
        let got = spread(&start(1, &weighted.join(", "), &more), 800, "/", "");
        let a = got.get("a").copied().unwrap_or(0);
        let b = got.get("b").copied().unwrap_or(0);
        assert_eq!(a + b, 800, "{balance}: {got:?}");
        assert!(a > 0 && b > 0, "{balance}: {got:?}");
        // 600, give or take 12 by chance; by latency it depends on how quick they are.
        assert!(balance == "latency" || (520..680).contains(&a), "{balance}: {got:?}");
    }
    assert_eq!(none.connections(), 0);
}

#[test]
fn flags_have_every_balance() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let to = format!("{},{}", a.authority, b.authority);
    for (balance, servers) in [("least-connections", 2), ("latency", 2), ("first", 1)] {
        let flags = ["--listen", "127.0.0.1:0", "--to", &to, "--balance", balance];
        let got = spread(&Door::with_flags(&flags), 60, "/", "");
        assert_eq!(got.len(), servers, "{balance}: {got:?}");
    }
    let flags = ["--listen", "127.0.0.1:0", "--to", &to, "--balance", "consistent-hash"];
    assert_eq!(spread(&Door::with_flags(&flags), 60, "/", "").len(), 1);
}

#[test]
fn a_slow_server_gets_few_by_latency() {
    let _shared = beside_others();
    let fast = telling("fast");
    let slow = answering_each(|_, _| {
        pause_ms(300);
        Some(ok(b"slow"))
    });
    let door = start(1, &servers(&[("f", &fast), ("s", &slow)]), "balance = \"latency\"");
    let got = spread(&door, 200, "/", "");
    let slow = got.get("slow").copied().unwrap_or(0);
    // By chance it would be 100; one finds out.
    assert!(slow >= 1, "{got:?}");
    demand(slow < 50, "less than half of what chance gives to a server that is slow", &got);
}

#[test]
fn a_server_that_fails_at_once_gets_few_by_latency() {
    let _shared = beside_others();
    let fine = answering_each(|_, _| {
        pause_ms(2);
        Some(ok(b"fine"))
    });
    let broken =
        answering_each(|_, _| Some(b"HTTP/1.1 503 No\r\nContent-Length: 6\r\n\r\nbroken".to_vec()));
    let door = start(1, &servers(&[("f", &fine), ("b", &broken)]), "balance = \"latency\"");
    let got = spread(&door, 200, "/", "");
    assert!((1..50).contains(&got.get("broken").copied().unwrap_or(0)), "{got:?}");
}

#[test]
fn least_connections_leaves_the_busy_alone() {
    let _shared = beside_others();
    let (gated, a, b) = (Gated::start(), telling("a"), telling("b"));
    let all = [("gated", &gated.server), ("a", &a), ("b", &b)];
    let door = start(1, &servers(&all), "balance = \"least-connections\"");
    let mut stuck = Vec::new();
    let asked = within(PATIENCE, || {
        stuck.push(send_and_leave_open(&door, "Connection: close\r\n"));
        gated.arrived.recv_timeout(std::time::Duration::from_millis(50)).is_ok()
    });
    assert!(asked, "one of three servers is never asked");
    let got = spread(&door, 200, "/", "");
    assert_eq!(got.values().sum::<usize>(), 200);
    assert!(got.len() == 2 && got["a"] > 50 && got["b"] > 50, "{got:?}");
    gated.let_one_through();
}

#[test]
fn first_fills_in_order() {
    let _shared = beside_others();
    let (gated, b, c) = (Gated::start(), telling("b"), telling("c"));
    let all = [
        server("gated", &gated.server.authority, ", maxconn = 1"),
        server("b", &b.authority, ", maxconn = 5"),
        server("c", &c.authority, ", maxconn = 5"),
    ];
    let door = start(2, &all.join(", "), "balance = \"first\"");
    let stuck = send_and_leave_open(&door, "");
    assert_eq!(gated.next(), "/");
    let got = spread(&door, 50, "/", "");
    assert_eq!(got, BTreeMap::from([("b".to_owned(), 50)]));
    gated.let_one_through();
    // As soon as the first has room it is the first again.
    let again = within(PATIENCE, || {
        drop(send_and_leave_open(&door, "Connection: close\r\n"));
        gated.arrived.recv_timeout(std::time::Duration::from_millis(50)).is_ok()
    });
    assert!(again, "the first server is never asked again");
    assert_eq!(c.connections(), 0);
    drop(stuck);
}

#[test]
fn backups_wait_for_the_others_to_be_away_and_not_full() {
    let _shared = beside_others();
    let (gated, spare) = (Gated::start(), telling("spare"));
    let all = |weight: u32| {
        let own = format!(", maxconn = 1, weight = {weight}");
        [
            server("own", &gated.server.authority, &own),
            server("spare", &spare.authority, ", backup = true"),
        ]
        .join(", ")
    };
    let more = "queue = { limit = 1, timeout = \"20ms\" }";
    let door = start(1, &all(1), more);
    let stuck = send_and_leave_open(&door, "");
    assert_eq!(gated.next(), "/");
    assert_eq!(door.get("/").status, 503);
    assert_eq!(spare.connections(), 0);
    door.reload(&config(1, &all(0), more));
    assert!(within(PATIENCE, || door.get("/").status == 200), "the backup is never asked");
    assert_eq!(spread(&door, 20, "/", ""), BTreeMap::from([("spare".to_owned(), 20)]));
    drop(stuck);
}

#[test]
fn a_key_has_its_server_on_every_thread_and_in_every_process() {
    let _shared = beside_others();
    let all = [telling("a"), telling("b"), telling("c")];
    let named = [("a", &all[0]), ("b", &all[1]), ("c", &all[2])];
    let more = "balance = \"consistent-hash\"\nhash = { key = \"header:x-user\" }";
    let doors = [start(2, &servers(&named), more), start(1, &servers(&named), more)];
    let mut belongs = BTreeMap::new();
    for user in 0..40 {
        let fields = format!("X-User: u{user}\r\n");
        let mut seen = BTreeSet::new();
        for door in &doors {
            for _ in 0..4 {
                seen.insert(ask(&mut door.client(), "/?x", &fields).0);
            }
        }
        assert_eq!(seen.len(), 1, "{user}: {seen:?}");
        belongs.insert(user, seen.pop_first().unwrap());
    }
    let used: BTreeSet<&String> = belongs.values().collect();
    assert_eq!(used.len(), 3, "{belongs:?}");
    assert_eq!(owner(&doors[0], "x-user: u7"), belongs[&7]);
    doors[0].metrics_until("nobody went elsewhere", |metrics| {
        metrics.known(ELSEWHERE, &[("pool", "app")]) == 0.0
    });

    // One server goes: only its own keys move.
    doors[0].reload(&config(2, &servers(&named[..2]), more));
    let of_c = belongs.iter().find(|(_, server)| **server == "c").unwrap().0;
    let gone = || ask(&mut doors[0].client(), "/", &format!("X-User: u{of_c}\r\n")).0 != "c";
    assert!(within(PATIENCE, gone), "the reload is never done");
    for (user, before) in &belongs {
        let (now, _) = ask(&mut doors[0].client(), "/", &format!("X-User: u{user}\r\n"));
        assert!(now == *before || before == "c" && now != "c", "{user}: {before} {now}");
    }
}

#[test]
fn keys_are_paths_cookies_and_clients() {
    let _shared = beside_others();
    let all = [telling("a"), telling("b"), telling("c")];
    let named = [("a", &all[0]), ("b", &all[1]), ("c", &all[2])];
    let door = |key: &str| {
        let more = format!("balance = \"consistent-hash\"\nhash = {{ key = \"{key}\" }}");
        start(1, &servers(&named), &more)
    };
    let by_path = door("path");
    let mut used = BTreeSet::new();
    for number in 0..20 {
        let got = spread(&by_path, 3, &format!("/x/../p{number}?q={number}"), "");
        let same = spread(&by_path, 3, &format!("/p{number}"), "X-Any: 1\r\n");
        assert!(got.len() == 1 && got == same, "{number}: {got:?} {same:?}");
        used.extend(got.into_keys());
    }
    assert_eq!(used.len(), 3);
    let by_cookie = door("cookie:user");
    let mut used = BTreeSet::new();
    for number in 0..20 {
        let got = spread(&by_cookie, 3, "/", &format!("Cookie: a=b; user={number}\r\n"));
        assert_eq!(got.len(), 1, "{number}: {got:?}");
        used.extend(got.into_keys());
    }
    assert_eq!(used.len(), 3);
    assert_eq!(spread(&by_cookie, 60, "/", "Cookie: User=1\r\n").len(), 3, "it has no key");
    let by_client = door("source");
    let got: BTreeSet<String> = (0..20).map(|_| ask(&mut by_client.client(), "/", "").0).collect();
    assert_eq!(got.len(), 1, "{got:?}");
}

#[test]
fn connections_of_mode_tcp_are_spread_by_client_and_by_latency() {
    let _shared = beside_others();
    let all = [telling("a"), telling("b"), telling("c")];
    let named = servers(&[("a", &all[0]), ("b", &all[1]), ("c", &all[2])]);
    for (balance, fewest, most) in [("consistent-hash", 1, 1), ("latency", 2, 3)] {
        // A connection may still count when the next one comes, and the bound of two is one.
        let more = format!("balance = \"{balance}\"\nhash = {{ load-factor = 100 }}");
        let config =
            config(1, &named, &more).replace("pool = \"app\"", "pool = \"app\"\nmode = \"tcp\"");
        let door = Door::weir(&config);
        let got: BTreeSet<String> = (0..40).map(|_| ask(&mut door.client(), "/", "").0).collect();
        assert!((fewest..=most).contains(&got.len()), "{balance}: {got:?}");
    }
}

#[test]
fn a_key_that_everybody_has_is_bounded() {
    let _shared = beside_others();
    let (gated, free) = (Gated::start(), telling("free"));
    let all = [("gated", &gated.server), ("free", &free)];
    let more = "balance = \"consistent-hash\"\nhash = { key = \"header:x-user\" }";
    let door = start(1, &servers(&all), more);
    let hot = (0..100).map(|user| format!("x-user: u{user}"));
    let hot = { hot }.find(|user| owner(&door, user) == "gated").expect("a key of one of two");
    let fields = format!("{hot}\r\n");
    // 1.25 times the half of one is one, of two is two, of three is two.
    let stuck: Vec<TcpStream> = (0..2).map(|_| send_and_leave_open(&door, &fields)).collect();
    assert_eq!([gated.next(), gated.next()], ["/", "/"]);
    let got = spread(&door, 10, "/", &fields);
    assert_eq!(got, BTreeMap::from([("free".to_owned(), 10)]));
    door.metrics_until("those that went elsewhere are counted", |metrics| {
        metrics.known(ELSEWHERE, &[("pool", "app")]) == 10.0
    });
    drop(stuck);
}

/// A pool whose clients stick.
fn sticky(more: &str) -> String {
    format!("balance = \"round-robin\"\nsticky = {{ cookie = \"SRV\", key = \"{KEY}\"{more} }}")
}

/// The cookie that an answer sets, as it is sent back.
fn cookie(answer: &Answer) -> Option<String> {
    let set = field(&answer.head, "set-cookie")?;
    Some(set.split(';').next().unwrap().to_owned())
}

/// Waits until these many requests had such a cookie.
fn wait_for_sticky(door: &Door, wanted: &[(&str, f64)]) {
    door.metrics_until(&format!("{wanted:?}"), |metrics| {
        let count = |found: &str| metrics.known(STICKY, &[("pool", "app"), ("cookie", found)]);
        wanted.iter().all(|(found, number)| count(found) == *number)
    });
}

/// curl with a cookie jar; what it prints.
fn curl(door: &Door, jar: &str) -> String {
    let jar = door.file(jar);
    let url = format!("http://{}/", door.authority());
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-c"])
        .arg(&jar)
        .arg("-b")
        .arg(&jar)
        .arg(url)
        .output()
        .expect("curl");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn curl_sticks_to_its_server_and_servers_do_not_know() {
    let _shared = beside_others();
    let all = [telling("a"), telling("b"), telling("c")];
    let door = start(2, &servers(&[("a", &all[0]), ("b", &all[1]), ("c", &all[2])]), &sticky(""));
    let mut firsts = BTreeSet::new();
    for jar in ["one", "two", "three", "four", "five", "six"] {
        let said: Vec<String> = (0..5).map(|_| curl(&door, jar)).collect();
        let names: BTreeSet<&str> = said.iter().map(|text| text.lines().next().unwrap()).collect();
        assert_eq!(names.len(), 1, "{said:?}");
        firsts.insert(names.into_iter().next().unwrap().to_owned());
        assert!(said.iter().all(|text| !text.contains("SRV") && !text.contains("ookie:")));
        let jar = std::fs::read_to_string(door.file(jar)).unwrap();
        assert!(jar.contains("#HttpOnly_") && jar.contains("SRV"), "{jar}");
    }
    assert!(firsts.len() > 1, "clients are balanced before they stick: {firsts:?}");
    let wanted = [("hit", 24.0), ("missing", 6.0), ("invalid", 0.0), ("unknown", 0.0)];
    wait_for_sticky(&door, &wanted);
    let told = [door.stdout(), door.stderr(), explained(&door, "a: b")].concat();
    let logged = door.wait_for_lines("access.json", 30).join("\n");
    assert!(!told.contains(KEY) && !logged.contains(KEY));
}

#[test]
fn a_cookie_is_set_once_with_its_attributes_and_good_in_every_process() {
    let _shared = beside_others();
    let all = [telling("a"), telling("b")];
    let named = servers(&[("a", &all[0]), ("b", &all[1])]);
    let door = start(1, &named, &sticky(""));
    let mut client = door.client();
    let (name, first) = ask(&mut client, "/", "");
    let set = field(&first.head, "set-cookie").unwrap();
    assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{set}");
    assert_eq!(field(&first.head, "cache-control").as_deref(), Some("private"));
    let own = cookie(&first).unwrap();
    assert!(!set.contains(&all[0].authority) && own.len() == "SRV=".len() + 32, "{set}");
    let back = format!("Cookie: a=1; {own}; b=2\r\n");
    for _ in 0..5 {
        let (again, answer) = ask(&mut client, "/", &back);
        assert_eq!((&again, cookie(&answer)), (&name, None));
        assert!(String::from_utf8_lossy(&answer.body).contains("Cookie: a=1; b=2\r\n"));
        assert_eq!(field(&answer.head, "cache-control"), None);
    }
    // Another process with the same key, and one with an age: it is set again each time.
    let other =
        start(1, &named, &sticky(", max-age = \"1h\", secure = true, same-site = \"none\""));
    let mut client = other.client();
    for _ in 0..4 {
        let (again, answer) = ask(&mut client, "/", &back);
        assert_eq!((&again, cookie(&answer)), (&name, Some(own.clone())));
        let set = field(&answer.head, "set-cookie").unwrap();
        assert!(set.ends_with("; Max-Age=3600; HttpOnly; Secure; SameSite=None"), "{set}");
    }
    assert!(explained(&door, &format!("Cookie: {own}")).contains(&format!(": names {name}\n")));
}

#[test]
fn a_cookie_that_is_tampered_with_chooses_nothing() {
    let _shared = beside_others();
    let all = [telling("a"), telling("b")];
    let named = [("a", &all[0]), ("b", &all[1])];
    let door = start(1, &servers(&named), &sticky(""));
    let mut client = door.client();
    let mut tokens = BTreeMap::new();
    while tokens.len() < 2 {
        let (name, answer) = ask(&mut client, "/", "");
        tokens.insert(name, cookie(&answer).unwrap());
    }
    let (of_a, of_b) = (&tokens["a"], &tokens["b"]);
    let flipped = if of_a.ends_with('A') { "B" } else { "A" };
    let wrong = [
        "SRV=a".to_owned(),
        format!("SRV={}", all[0].authority),
        format!("{}{flipped}", &of_a[..of_a.len() - 1]),
        format!("{}{}", &of_a[..20], &of_b[20..]),
        format!("{of_a}A"),
    ];
    for cookie_line in &wrong {
        let mut seen = BTreeSet::new();
        for _ in 0..2 {
            let (name, answer) = ask(&mut client, "/", &format!("Cookie: {cookie_line}\r\n"));
            // In turn, as if there were none; and it gets a good one.
            assert_eq!(cookie(&answer).as_ref(), Some(&tokens[&name]), "{cookie_line}");
            seen.insert(name);
        }
        assert_eq!(seen.len(), 2, "{cookie_line}");
    }
    wait_for_sticky(&door, &[("invalid", 10.0), ("hit", 0.0)]);

    // One whose server has left the config is good, and of no use.
    door.reload(&config(1, &servers(&named[..1]), &sticky("")));
    let back = format!("Cookie: {of_b}\r\n");
    let to_a = || ask(&mut door.client(), "/", &back).0 == "a";
    assert!(within(PATIENCE, to_a), "the reload is never done");
    door.metrics_until("it is counted", |metrics| {
        metrics.known(STICKY, &[("pool", "app"), ("cookie", "unknown")]) >= 1.0
    });
}

#[test]
fn the_applications_cookie_gets_a_prefix_that_it_never_sees() {
    let _shared = beside_others();
    let app = |name: &'static str| {
        answering_each(move |request, _| {
            let seen = request.field("cookie").unwrap_or_else(|| "none".to_owned());
            let body = format!("{name}\n{seen}\n");
            let set = if seen.contains("SRV=") { "" } else { "Set-Cookie: SRV=s=1; Path=/\r\n" };
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{set}");
            Some(format!("{head}Set-Cookie: other={name}; Path=/\r\n\r\n{body}").into_bytes())
        })
    };
    let (a, b) = (app("a"), app("b"));
    let door = start(1, &servers(&[("a", &a), ("b", &b)]), &sticky(", mode = \"prefix\""));
    for jar in ["one", "two", "three", "four"] {
        let first = curl(&door, jar);
        let name = first.lines().next().unwrap();
        assert_eq!(first, format!("{name}\nnone\n"));
        let kept = std::fs::read_to_string(door.file(jar)).unwrap();
        assert!(kept.contains("~s=1") && kept.contains(&format!("other\t{name}")), "{kept}");
        for _ in 0..4 {
            let again = curl(&door, jar);
            assert!(again.starts_with(&format!("{name}\n")), "{first} {again}");
            assert!(again.contains("SRV=s=1") && !again.contains('~'), "{again}");
        }
    }
    wait_for_sticky(&door, &[("hit", 16.0), ("missing", 4.0)]);
}

#[test]
fn who_sticks_to_a_server_that_cannot_be_reached_gets_another() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let door = start(1, &servers(&[("a", &a), ("b", &b)]), &sticky(""));
    let mut client = door.client();
    let of_b = loop {
        let (name, answer) = ask(&mut client, "/", "");
        if name == "b" {
            break cookie(&answer).unwrap();
        }
    };
    // It is the name that counts, and b is gone from where it was.
    let refusing = Refusing::new();
    let all = [server("a", &a.authority, ""), server("b", &refusing.authority, "")];
    let door = start(1, &all.join(", "), &sticky(""));
    let (name, answer) = ask(&mut door.client(), "/", &format!("Cookie: {of_b}\r\n"));
    assert_eq!((name.as_str(), answer.status), ("a", 200));
    let new = cookie(&answer).unwrap();
    assert_ne!(new, of_b);
    let (name, answer) = ask(&mut door.client(), "/", &format!("Cookie: {new}\r\n"));
    assert_eq!((name.as_str(), cookie(&answer)), ("a", None));
}

#[test]
fn who_sticks_to_a_full_server_waits_for_it_and_holds_up_nobody() {
    let _shared = beside_others();
    let (gated, free) = (Gated::start(), telling("free"));
    let all = [
        server("gated", &gated.server.authority, ", maxconn = 1"),
        server("free", &free.authority, ""),
    ];
    let more = format!("{}\nqueue = {{ limit = 4, timeout = \"10s\" }}", sticky(""));
    let door = start(1, &all.join(", "), &more);
    // The first turn is that of the gated one; its answer brings its cookie.
    gated.let_one_through();
    let (name, answer) = ask(&mut door.client(), "/", "");
    assert_eq!(name, "through");
    assert_eq!(gated.next(), "/");
    let back = format!("Cookie: {}\r\n", cookie(&answer).unwrap());
    let stuck = send_and_leave_open(&door, &back);
    assert_eq!(gated.next(), "/");
    let mut waiting = door.client();
    waiting.send(format!("GET /waits HTTP/1.1\r\nHost: t\r\n{back}\r\n").as_bytes());
    door.metrics_until("it waits", |metrics| {
        metrics.known(crate::support::metrics::QUEUED, &[("pool", "app")]) == 1.0
    });
    let got = spread(&door, 20, "/", "");
    assert_eq!(got, BTreeMap::from([("free".to_owned(), 20)]));
    gated.let_one_through();
    gated.let_one_through();
    assert_eq!(waiting.answer().map(|answer| answer.body), Some(b"through".to_vec()));
    assert_eq!(gated.next(), "/waits");
    drop(stuck);
}

#[test]
fn a_key_may_be_in_a_file() {
    let _shared = beside_others();
    let a = telling("a");
    let folder = crate::support::folder();
    let file = folder.path().join("sticky.key");
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    let named = servers(&[("a", &a)]);
    let from_file = format!("sticky = {{ cookie = \"SRV\", key-file = \"{}\" }}", file.display());
    let doors = [start(1, &named, &from_file), start(1, &named, &sticky(""))];
    let cookies = doors.each_ref().map(|door| cookie(&ask(&mut door.client(), "/", "").1));
    assert!(cookies[0].is_some() && cookies[0] == cookies[1], "{cookies:?}");
    // A reload reads it anew, from within the confinement.
    let new = folder.path().join("new");
    std::fs::write(&new, "another key of the same tests").unwrap();
    std::fs::rename(new, &file).unwrap();
    doors[0].reload(&config(1, &named, &from_file));
    let changed = || cookie(&ask(&mut doors[0].client(), "/", "").1) != cookies[0];
    assert!(within(PATIENCE, changed), "{}", doors[0].stderr());
}

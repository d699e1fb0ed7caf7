//! Steps of pairs for which single requests are not enough. Each returns its result as a text.

use crate::support::client::Client;
use crate::support::{EVENT_TIMEOUT, pause_ms, within};

use super::sides::{COPIED, Side};

/// Waits until requests succeed, and counts the origins of the next ones.
pub(super) fn becomes_up(side: &Side) -> String {
    within(EVENT_TIMEOUT, || {
        let is_up = side.request("/", &[])[0].starts_with("200");
        is_up && {
            pause_ms(200);
            side.request("/", &[])[0].starts_with("200")
        }
    });
    side.origins("/", 3)
}

/// A cookie that the proxy sets keeps the client at its server, which does not get it.
pub(super) fn cookie(side: &Side) -> String {
    let first = side.request("/", &["set-cookie"]);
    let set = first.iter().find_map(|line| line.strip_prefix("< set-cookie: ")).unwrap_or("none").to_owned();
    let (pair, attributes) = set.split_once(';').unwrap_or((&set, ""));
    let name = pair.split('=').next().unwrap_or_default();
    let mut text = name.to_owned();
    if attributes.to_ascii_lowercase().contains("httponly") {
        text += ", HttpOnly";
    }
    let with_cookie = format!("/ -H Cookie:~{pair}");
    let stays = (0..4).all(|_| side.request(&with_cookie, &[])[0] == first[0]);
    let others = side.origins("/", 4);
    text += if stays && others.contains('a') && others.contains('b') {
        "; the server of the cookie"
    } else {
        "; any server"
    };
    let forwarded = side.request(&with_cookie, &["cookie"]);
    text + if forwarded.iter().any(|line| line.starts_with("> cookie")) {
        "; forwarded"
    } else {
        "; not forwarded"
    }
}

/// So many requests at once succeed, and the next ones are rejected.
pub(super) fn limit(side: &Side, path: &str, count: usize) -> String {
    let within_limit = side.origins(path, count);
    // While they were sent, the bucket may have got tokens.
    let rejected =
        (0..count).map(|_| side.request(path, &[])[0].clone()).find(|summary| !summary.starts_with("200"));
    format!("{within_limit}, then {}", rejected.unwrap_or_else(|| "no rejection".to_owned()))
}

/// A tunnel returns what it gets.
pub(super) fn websocket(side: &Side) -> String {
    let (head, line) = side.tunnel(
        "GET /live/x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        "hello\n",
    );
    let origin = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("x-origin").then_some(value)
    });
    let status = head.split(' ').nth(1).unwrap_or_default();
    format!("{status} {}, {}", origin.unwrap_or("-"), line.trim_end())
}

/// Requests with and without content arrive at a second server, too.
pub(super) fn copies(side: &Side) -> String {
    let target = format!("/copied/{}?x=1", side.program.title());
    let responses =
        ["", " -d small"].map(|arguments| side.request(&(target.clone() + arguments), &[])[0].clone());
    let copies = || -> Vec<String> {
        let copied = COPIED.lock().unwrap();
        let own = copied.iter().filter(|line| line.contains(&target));
        let mut own: Vec<String> = own.map(|line| line.replace(&target, "/")).collect();
        own.sort();
        own
    };
    within(EVENT_TIMEOUT, || copies().len() == 4);
    format!("{}; {}", responses.join(", "), copies().join(", "))
}

pub(super) fn statistics(side: &Side) -> String {
    let page = side.request("admin:/", &[]);
    let has_pool = page.iter().any(|line| line.contains("app"));
    format!("{}, {}", page[0], if has_pool { "with the pool" } else { "without the pool" })
}

/// A second request waits for the only connection, too long.
pub(super) fn queue(side: &Side) -> String {
    let (slow, waiting) = std::thread::scope(|scope| {
        let slow = scope.spawn(|| side.request("/slow", &[])[0].clone());
        pause_ms(300);
        let waiting = side.request("/", &[])[0].clone();
        (slow.join().unwrap(), waiting)
    });
    format!("{slow} while {waiting}; then {}", side.request("/", &[])[0])
}

/// Requests get neither the error of a server that refuses connections, nor that of one that responds 503.
pub(super) fn retries(side: &Side) -> String {
    let first = side.request("/flaky", &[])[0].clone();
    let status = || side.request("/", &[])[0].split(' ').next().unwrap_or_default().to_owned();
    format!("{first}; {}, {}", status(), status())
}

/// Entries of a map are added, changed and deleted in the running program. Returns the tenants of two hosts after each.
pub(super) fn changed_entries(side: &Side) -> String {
    let tenants = || {
        ["a", "b"].map(|host| {
            let lines = side.request(&format!("/ -H Host:~{host}.example.org"), &["x-tenant"]);
            lines.iter().find_map(|line| line.strip_prefix("> x-tenant: ")).unwrap_or("-").to_owned()
        })
    };
    let mut texts = vec![tenants().join(", ")];
    for (step, change) in [("added", "add"), ("changed", "set"), ("deleted", "del")] {
        let value = if step == "added" { "silver" } else { "bronze" };
        side.change_entry(change, "b.example.org", value);
        texts.push(format!("{step} {}", tenants().join(", ")));
    }
    texts.join("; ")
}

/// Requests of one session get one server; those without a session take turns.
pub(super) fn sessions(side: &Side) -> String {
    let server = |session: usize| side.request(&format!("/ -H X-Session:~user-{session}"), &[])[0].clone();
    let first: Vec<String> = (0..8).map(server).collect();
    let is_kept = (0..3).all(|_| (0..8).map(server).collect::<Vec<_>>() == first);
    let all: std::collections::BTreeSet<&String> = first.iter().collect();
    let others = side.origins("/", 24);
    let count = |is_two: bool| if is_two { "two" } else { "one" };
    format!(
        "each session has {}; all sessions have {}; others have {}",
        if is_kept { "one server" } else { "several servers" },
        count(all.len() == 2),
        count(others.contains(" b") && others.contains(" c")),
    )
}

/// Users get the server of the share or the other one, and the same again.
pub(super) fn percentage(side: &Side) -> String {
    const USERS: usize = 400;
    let mut client = Client::connect(&side.authority());
    let mut is_in_share = |user: usize| {
        let response = client.get_with_fields("/", &format!("Host: a\r\nCookie: user=u{user}\r\n"));
        response.head.contains("X-Origin: b")
    };
    let first: Vec<bool> = (0..USERS).map(&mut is_in_share).collect();
    let again: Vec<bool> = (0..USERS).map(&mut is_in_share).collect();
    let count = first.iter().filter(|is_in| **is_in).count();
    // Three standard deviations of 400 draws with a chance of a tenth are 18. The hashes of both programs are fixed.
    let share =
        if (22..=58).contains(&count) { "about a tenth".to_owned() } else { format!("{count} of {USERS}") };
    format!("{share}; {}", if again == first { "the same again" } else { "not the same again" })
}

/// Each request gets one of two servers.
pub(super) fn division(side: &Side) -> String {
    const REQUESTS: usize = 400;
    let mut client = Client::connect(&side.authority());
    let is_of_b = |_: &usize| {
        client.get_with_fields("/", "Host: a\r\n").head.to_ascii_lowercase().contains("x-origin: b")
    };
    let count = (0..REQUESTS).filter(is_of_b).count();
    // Five standard deviations of 400 draws with a chance of a tenth are 30.
    if (10..=70).contains(&count) { "about a tenth".to_owned() } else { format!("{count} of {REQUESTS}") }
}

/// A long response takes its time.
pub(super) fn limited_bytes(side: &Side) -> String {
    let start = rt::clock::MonotonicTime::now();
    let response = Client::connect(&side.authority()).get("/big");
    let is_late = rt::clock::MonotonicTime::now().since(start) >= 1_900_000_000;
    format!("{} bytes, {}", response.body.len(), if is_late { "not at once" } else { "at once" })
}

/// A server is added to the pool of the running program.
pub(super) fn added_server(side: &Side) -> String {
    let before = side.origins("/", 4);
    let address = &side.second_origin;
    let add = format!("add server app/b {address}");
    side.operate(&format!("server app/b add {address}"), &[&add, "enable server app/b"]);
    let after = side.origins("/", 40);
    let has = |name: &str| after.contains(&format!("200 {name}"));
    format!("{before}; then {}", if has("a") && has("b") { "both" } else { "one" })
}

/// All servers of the running program are in maintenance, and back.
pub(super) fn maintenance(side: &Side) -> String {
    let status = || side.request("/", &[])[0].clone();
    side.operate("maintenance on", &["set server app/a state maint"]);
    let during = status();
    side.operate("maintenance off", &["set server app/a state ready"]);
    format!("{during}, then {}", status())
}

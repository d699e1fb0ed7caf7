//! Ambiguous requests: what the origin receives of them, and what the client is told.

use super::{Vector, Verdict, table, vectors, verdict};
use crate::support::beside_others;
use crate::support::proxies::{Proxy, Recorder, Reply, Seen, Setup, Subject};
use crate::support::strict::{Message, Wrong};

const CORPUS: &str = include_str!("requests.txt");
/// Known differences between parsers.
pub(super) const DIFFERENCES: &str = include_str!("differences.txt");
/// What the RFCs ask for.
pub(super) const REQUIREMENTS: &str = include_str!("requirements.txt");
const MARKER: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: marker\r\n\r\n";

/// An origin that says in each answer what it believes to answer.
fn origin() -> Recorder {
    Recorder::start(|request| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Answers: ";
        let body = if request.method() == "HEAD" { "" } else { "ok" };
        Reply::Stay(vec![format!("{head}{}\r\n\r\n{body}", request.target()).into_bytes()])
    })
}

/// What the client got: whole answers, and how it ended.
#[derive(Debug)]
struct Got {
    answers: Vec<Message>,
    end: Wrong,
}

impl Got {
    /// The answers that the origin gave.
    fn of_origin(&self) -> Vec<&str> {
        self.answers.iter().filter_map(|answer| answer.one("x-answers")).collect()
    }

    /// The status of the last answer when the proxy gave it itself; 0: it only closed.
    fn refusal(&self) -> Option<u16> {
        match self.answers.last() {
            Some(last) => last.one("x-answers").is_none().then_some(last.status()),
            None => matches!(self.end, Wrong::Over).then_some(0),
        }
    }
}

fn send(proxy: &Proxy, vector: &Vector) -> Got {
    let mut caller = proxy.connect();
    // The proxy may have closed before the last byte.
    let _ = caller.send(&[&vector.bytes[..], MARKER].concat());
    let patience = std::time::Duration::from_secs(10);
    caller.stream.set_read_timeout(Some(patience)).unwrap();
    let method = if vector.bytes.starts_with(b"HEAD") { "HEAD" } else { "GET" };
    let mut answers: Vec<Message> = Vec::new();
    loop {
        match caller.reader.answer(method) {
            Ok((_, answer)) => answers.push(answer),
            Err(end) => return Got { answers, end },
        }
        // The marker's answer is the last that can come.
        if answers.last().is_some_and(|last| last.one("x-answers") == Some("/smuggled")) {
            return Got { answers, end: Wrong::Silent };
        }
    }
}

/// Sends a vector, and then a probe that must get its own answer.
fn judge(proxy: &Proxy, origin: &Recorder, vector: &Vector, subject: Subject) -> Verdict {
    let got = send(proxy, vector);
    let probe = format!("/probe-{}", vector.name);
    let request = format!("GET {probe} HTTP/1.1\r\nHost: probe\r\n\r\n");
    let answer = proxy.connect().ask(request.as_bytes());
    let mut seen = origin.so_far();
    if !answer.as_ref().is_ok_and(|answer| answer.one("x-answers") == Some(probe.as_str())) {
        return verdict("UNSAFE", format!("the next client got {answer:?}; origin {seen:?}"));
    }
    seen.retain(|one| !one.request.as_ref().is_ok_and(|request| request.target() == probe));
    classify(vector, &got, &seen, subject)
}

/// Whether a request is the one that a row names: `METHOD TARGET LENGTH`, and then the number of
/// requests with the marker, 2 if it is not there.
fn fits(request: &Message, form: &[&str]) -> bool {
    let [method, target, length, ..] = form[..] else { return false };
    let absolute = request.target().strip_prefix("http://a.example");
    request.method() == method
        && (request.target() == target || absolute == Some(target) || target.contains('\\'))
        && request.body.len().to_string() == length
}

fn classify(vector: &Vector, got: &Got, seen: &[Seen], subject: Subject) -> Verdict {
    let mut whole = Vec::new();
    for one in seen {
        match &one.request {
            Ok(request) => whole.push(request),
            // A body that the proxy broke off is refused by any origin.
            Err(Wrong::Truncated(_)) => {}
            Err(wrong) => return verdict("ambiguous", format!("the origin saw {wrong:?}")),
        }
    }
    // Each request that the origin saw is one that the client was answered, in its order.
    let targets: Vec<&str> = whole.iter().map(|request| request.target()).collect();
    if targets != got.of_origin() {
        let text = format!("origin saw {targets:?}, client got {got:?}");
        return verdict("UNSAFE", text);
    }
    let words: Vec<&str> = vector.expected.split(' ').collect();
    let (may_reject, statuses, form) = match words[..] {
        ["reject" | "answer", ref statuses @ ..] => (true, statuses, &[][..]),
        ["pass", ref form @ ..] => (false, &[][..], form),
        ["either" | "alone", _, ref form @ ..] => (true, &words[1..2], form),
        _ => panic!("{}: {}", vector.name, vector.expected),
    };
    if whole.is_empty() {
        let Some(status) = got.refusal() else {
            return verdict("stuck", format!("nothing happened: {got:?}"));
        };
        let known = statuses.contains(&status.to_string().as_str())
            || (status == 0 && statuses.contains(&"close"))
            || subject != Subject::Weir;
        return match (may_reject, known && got.answers.len() <= 1) {
            (true, true) => verdict("rejected", format!("rejected {status}")),
            (true, false) => verdict("odd", format!("rejected with {got:?}")),
            (false, _) => verdict("over-strict", format!("rejected {status}")),
        };
    }
    let first = got.answers.first().map(|first| first.status().to_string());
    if words[0] == "answer" && targets == ["/smuggled"] && got.answers.len() == 2 {
        let known = first.is_some_and(|first| statuses.contains(&first.as_str()));
        return verdict(if known { "rejected" } else { "odd" }, "answered, and went on");
    }
    let marked = targets.contains(&"/smuggled");
    let lenient = |why: &str| verdict("lenient", format!("{why}: {whole:?}"));
    if form.is_empty() {
        return lenient(if marked { "forwarded, with the marker" } else { "forwarded" });
    }
    if !fits(whole[0], form) {
        return lenient("not in that form");
    }
    let wanted = form.get(3).map_or(2, |count| count.parse().unwrap());
    match (words[0], marked) {
        ("alone", true) => lenient("the connection went on"),
        (_, false) => verdict("forwarded", "forwarded, then closed"),
        (_, true) if whole.len() == wanted => verdict("forwarded", "forwarded"),
        _ => verdict("UNSAFE", format!("too many requests: {whole:?}")),
    }
}

fn column(subject: Subject, corpus: &[Vector]) -> Vec<Verdict> {
    let origin = origin();
    let mut proxy = subject.start(origin.authority(), Setup::default());
    let verdicts = corpus.iter().map(|vector| judge(&proxy, &origin, vector, subject)).collect();
    proxy.assert_alive();
    verdicts
}

#[test]
fn weir_lets_nothing_ambiguous_through() {
    let _shared = beside_others();
    assert_all_safe(CORPUS);
}

/// Sends every row of a table, and holds what came of it against what may.
pub(super) fn assert_all_safe(table_text: &str) {
    if !Subject::Weir.is_here() {
        return;
    }
    let corpus = vectors(table_text);
    let verdicts = column(Subject::Weir, &corpus);
    table(&[("weir", &verdicts)], &corpus);
    let rows = corpus.iter().zip(&verdicts);
    let bad = rows.filter(|(_, verdict)| !["rejected", "forwarded"].contains(&verdict.class));
    let bad: Vec<String> = bad
        .map(|(vector, Verdict { class, text })| {
            format!("{} ({}): {class}: {text}", vector.name, vector.expected)
        })
        .collect();
    assert!(bad.is_empty(), "{} vectors:\n{}", bad.len(), bad.join("\n"));
}

/// The runner itself, against a proxy that is known: plain rows pass, the classics are refused, and
/// nothing else is so slack that it could not tell.
#[test]
#[ignore = "judges HAProxy and not weir, for people: cargo test -- --ignored"]
fn the_runner_tells_what_haproxy_does() {
    let _shared = beside_others();
    if !Subject::Haproxy.is_here() {
        return;
    }
    let corpus = vectors(CORPUS);
    assert!(corpus.len() >= 130, "{} vectors", corpus.len());
    let named = |part: &str| corpus.iter().any(|vector| vector.name == part);
    assert!(named("plain-get") && named("cl-two-different"));
    let verdicts = column(Subject::Haproxy, &corpus);
    let count = |class| verdicts.iter().filter(|verdict| verdict.class == class).count();
    table(&[("haproxy", &verdicts)], &corpus);
    let classes = ["rejected", "forwarded", "lenient", "UNSAFE"].map(count);
    // Most are refused, some are forwarded in a safe form, and some where weir is stricter.
    assert!(classes[0] >= 100 && classes[1] >= 20 && classes[2] >= 3, "{classes:?}");
    for (vector, verdict) in corpus.iter().zip(&verdicts) {
        let plain = vector.name.starts_with("plain-");
        assert!(!plain || verdict.class == "forwarded", "{}: {}", vector.name, verdict.text);
    }
}

#[test]
#[ignore = "a comparison, for people: prints what each proxy does with each vector"]
fn the_columns_of_all_proxies() {
    let corpus = vectors(CORPUS);
    let subjects = [Subject::Weir, Subject::Haproxy, Subject::Nginx];
    let here: Vec<Subject> = subjects.into_iter().filter(|subject| subject.is_here()).collect();
    let columns: Vec<Vec<Verdict>> = here.iter().map(|subject| column(*subject, &corpus)).collect();
    let names: Vec<String> = here.iter().map(|subject| format!("{subject:?}")).collect();
    let columns: Vec<(&str, &[Verdict])> =
        names.iter().zip(&columns).map(|(name, verdicts)| (name.as_str(), &verdicts[..])).collect();
    table(&columns, &corpus);
}

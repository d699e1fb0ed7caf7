//! Hostile answers: what the client gets of them, and that the next client gets its own.

use std::io;
use std::time::Duration;

use super::{Vector, Verdict, table, vectors, verdict};
use crate::support::peers::Scripted;
use crate::support::proxies::{Proxy, Setup, Subject};
use crate::support::strict::{Message, Reader, Wrong, shown};
use crate::support::{PATIENCE, beside_others};

const CORPUS: &str = include_str!("responses.txt");

/// An origin that sends the vector whose index is the target, and `fine` for anything else.
fn origin() -> Scripted {
    let corpus = vectors(CORPUS);
    Scripted::start(move |peer| {
        let mut reader = Reader::new(&peer.stream);
        while let Ok(request) = reader.request() {
            let index = request.target().trim_start_matches('/').parse::<usize>();
            match index.ok().and_then(|index| corpus.get(index)) {
                Some(vector) => peer.send(&vector.bytes)?,
                None => {
                    let target = request.target();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-For: {target}");
                    peer.send(format!("{head}\r\n\r\nfine").as_bytes())?;
                }
            }
        }
        io::Result::Ok(())
    })
}

fn judge(proxy: &Proxy, index: usize, vector: &Vector, patience: Duration) -> Verdict {
    let mut caller = proxy.connect();
    caller.stream.set_read_timeout(Some(patience)).unwrap();
    let answer = caller.ask(format!("GET /{index} HTTP/1.1\r\nHost: a.example\r\n\r\n").as_bytes());
    // The same client's next request, and then other clients', get their own answers or none.
    let _ = caller.send(b"GET /own HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let own = caller.reader.answer("GET").map(|(_, answer)| answer);
    if own.as_ref().is_ok_and(|own| own.status() == 200 && own.one("x-for") != Some("/own")) {
        return verdict("UNSAFE", format!("its next answer is {own:?}"));
    }
    for target in ["/next-1", "/next-2"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let next = proxy.connect().ask(request.as_bytes());
        if !next.as_ref().is_ok_and(|next| next.one("x-for") == Some(target)) {
            return verdict("UNSAFE", format!("the next client got {next:?}"));
        }
    }
    classify(vector, answer)
}

fn classify(vector: &Vector, answer: Result<Message, Wrong>) -> Verdict {
    let (kind, body) = vector.expected.split_once(' ').unwrap_or((&vector.expected, ""));
    let body = body.trim_matches('-');
    match answer {
        Ok(answer) if answer.status() == 502 => match kind {
            "pass" => verdict("over-strict", "502"),
            _ => verdict("rejected", "502"),
        },
        Err(Wrong::Over | Wrong::Truncated(_)) => match kind {
            "pass" => verdict("over-strict", "closed"),
            _ => verdict("rejected", "closed"),
        },
        Err(Wrong::Silent) => verdict("stuck", "nothing in time"),
        Err(wrong) => verdict("ambiguous", format!("the client got {wrong:?}")),
        Ok(answer) => {
            let evil = answer.body.windows(4).any(|four| four == b"EVIL");
            let right = answer.body == body.as_bytes() && matches!(kind, "pass" | "either");
            let cut = kind == "cut" && !answer.persists();
            match (evil, right || cut) {
                (true, _) => verdict("UNSAFE", shown(&answer.body)),
                (false, true) => verdict("forwarded", format!("forwarded {}", answer.status())),
                (false, false) => verdict("lenient", format!("forwarded {answer:?}")),
            }
        }
    }
}

fn column(subject: Subject, corpus: &[Vector]) -> Vec<Verdict> {
    let origin = origin();
    let mut proxy = subject.start(&origin.authority, Setup::default());
    let rows = corpus.iter().enumerate();
    // Others hang on some rows, and that is waited for; ours must not.
    let patience = if subject == Subject::Weir { PATIENCE } else { Duration::from_secs(5) };
    let verdicts = rows.map(|(index, vector)| judge(&proxy, index, vector, patience)).collect();
    proxy.assert_alive();
    verdicts
}

#[test]
fn weir_gives_no_client_what_it_did_not_ask_for() {
    let _shared = beside_others();
    if !Subject::Weir.is_here() {
        return;
    }
    let corpus = vectors(CORPUS);
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

#[test]
#[ignore = "judges HAProxy and not weir, for people: cargo test -- --ignored"]
fn the_runner_tells_what_haproxy_does_with_hostile_answers() {
    let _shared = beside_others();
    if !Subject::Haproxy.is_here() {
        return;
    }
    let corpus = vectors(CORPUS);
    let verdicts = column(Subject::Haproxy, &corpus);
    table(&[("haproxy", &verdicts)], &corpus);
    let safe = ["rejected", "forwarded"];
    let safe = verdicts.iter().filter(|verdict| safe.contains(&verdict.class)).count();
    assert!(safe * 4 >= corpus.len() * 3, "{safe} of {}", corpus.len());
    for (vector, verdict) in corpus.iter().zip(&verdicts) {
        let plain = vector.name.starts_with("plain");
        assert!(!plain || verdict.class == "forwarded", "{}: {}", vector.name, verdict.text);
    }
}

#[test]
#[ignore = "a comparison, for people: prints what each proxy does with each vector"]
fn the_columns_of_all_proxies() {
    let corpus = vectors(CORPUS);
    for subject in [Subject::Weir, Subject::Haproxy, Subject::Nginx] {
        if subject.is_here() {
            table(&[(&format!("{subject:?}"), &column(subject, &corpus))], &corpus);
        }
    }
}

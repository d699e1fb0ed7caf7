//! What commands say, without a proxy: the table, and what is wrong with a line.

use super::change::Change;
use super::*;
use crate::pool::Wanted;

/// A desk without cores, and nobody who takes orders.
fn desk() -> Desk {
    Desk {
        messages: Vec::new(),
        drain: rt::drain::Drain::default().watch(),
        started_ns: 0,
        give: Box::new(|_| false),
        passing_on: OneAtATime::default(),
    }
}

fn say(line: &str) -> Outcome {
    let (stream, _client) = UnixStream::pair().unwrap();
    obey(line, &desk(), &stream, LocalPeer { user: 0, process: 1 })
}

fn wrong(line: &str) -> String {
    match say(line) {
        Err(Refusal::Wrong(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn what_is_wrong_with_a_line_is_said() {
    assert!(wrong("").contains("no command") && wrong(" --json ").contains("no command"));
    assert!(wrong("shwo").contains("did you mean 'show'"));
    assert!(wrong("show me").contains("`show servers`"));
    assert!(wrong("server").contains("`server POOL/NAME drain`"));
    assert!(wrong("server a/b jump").contains("is not understood"));
    assert!(wrong("server a/b weight 257").contains("0 to 256"));
    assert!(wrong("server a/b maxconn 0").contains("1 or more"));
    assert!(wrong("server a drain").contains("POOL/NAME"));
    assert!(wrong("kill").contains("`kill ID...`") && wrong("kill x").contains("no id"));
    for name in ["reload", "reopen", "drain", "top", "profile"] {
        assert!(wrong(&format!("{name} now please")).contains("is not understood"), "{name}");
    }
    // Nobody holds the proxy any more.
    for line in ["reload", "show servers", "server a/b drain"] {
        assert!(matches!(say(line), Err(Refusal::Cannot(_))), "{line}");
    }
}

#[test]
fn changes_of_a_server_are_read() {
    let parse = |text: &str| Change::parse(&text.split(' ').collect::<Vec<_>>());
    assert_eq!(parse("drain"), Ok(Some(Change::Want(Wanted::Drain))));
    assert_eq!(parse("weight 0"), Ok(Some(Change::Weight(Some(0)))));
    assert_eq!(parse("weight default"), Ok(Some(Change::Weight(None))));
    assert_eq!(parse("maxconn 7"), Ok(Some(Change::Maxconn(Some(7)))));
    assert_eq!(parse("drain now"), Ok(None));
    assert!(parse("weight -1").is_err() && parse("maxconn x").is_err());
}

#[test]
fn help_and_reference_have_every_command() {
    let (help, reference) = (help(), reference());
    for name in names() {
        assert!(help.contains(&format!("  {name}")) && reference.contains(&format!("`{name}")));
    }
    assert_eq!(say("help"), Ok(Some(help)));
}

#[test]
fn the_sockets_are_passed_to_one_process_at_a_time() {
    let desk = desk();
    let turn = desk.passing_on.enter();
    assert!(turn.is_some() && desk.passing_on.enter().is_none());
    let (stream, mut client) = UnixStream::pair().unwrap();
    let say = || obey("upgrade", &desk, &stream, LocalPeer { user: 0, process: 1 });
    assert!(matches!(say(), Err(Refusal::Cannot(text)) if text.contains("another process")));
    drop(turn);
    // With nobody who has sockets, it says so by itself.
    assert_eq!(say(), Ok(None));
    let mut answer = [0; 64];
    let read = std::io::Read::read(&mut client, &mut answer).unwrap();
    assert!(answer[..read].starts_with(b"error: "), "{answer:?}");
    assert!(matches!(wrong("upgrade now").as_str(), text if text.contains("`upgrade`")));
}

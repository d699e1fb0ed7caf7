//! Responses of commands without a proxy: the command table, and errors for invalid lines.

use rt::clock::MonotonicTime;

use super::change::ServerChange;
use super::*;
use crate::pool::AdminState;
use crate::run::CoreSenders;

/// Returns a command context without cores and without an owner that takes commands.
fn context() -> CommandContext {
    CommandContext {
        cores: CoreSenders::default(),
        drain: rt::drain::Drain::default().watch(),
        started: MonotonicTime::ZERO,
        send_to_owner: Box::new(|_| false),
        upgrade_lock: TryLock::default(),
    }
}

fn run(line: &str) -> CommandResult {
    let (stream, _client) = UnixStream::pair().unwrap();
    run_command(line, &context(), &stream, PeerCredentials { uid: 0, pid: 1 })
}

fn invalid_message(line: &str) -> String {
    match run(line) {
        Err(CommandError::Invalid(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn errors_for_invalid_lines_explain_them() {
    assert!(
        invalid_message("").contains("missing command")
            && invalid_message(" --json ").contains("missing command")
    );
    assert!(invalid_message("shwo").contains("'show'"));
    assert!(invalid_message("show me").contains("`show servers`"));
    assert!(invalid_message("server").contains("`server POOL/NAME drain`"));
    assert!(invalid_message("server a/b jump").contains("invalid command"));
    assert!(invalid_message("server a/b weight 257").contains("0 to 256"));
    assert!(invalid_message("server a/b maxconn 0").contains("1 or more"));
    assert!(invalid_message("server a drain").contains("POOL/NAME"));
    assert!(invalid_message("server a/b add localhost").contains("is not an address"));
    assert!(invalid_message("server a/b add 127.0.0.1:80 weight 257").contains("0 to 256"));
    assert!(invalid_message("server a/b add 127.0.0.1:80 faster").contains("invalid command"));
    assert!(invalid_message("server a/b remove now").contains("invalid command"));
    assert!(invalid_message("pool app").contains("`pool POOL drain`"));
    assert!(invalid_message("pool app jump").contains("invalid command"));
    assert!(invalid_message("maintenance now").contains("`maintenance on`"));
    assert!(invalid_message("maintenance on page html").contains("is not a page"));
    assert!(invalid_message("maintenance on page html values e3h9").contains("'{x}' is not a value"));
    assert!(
        invalid_message("kill").contains("`kill ID...`") && invalid_message("kill x").contains("invalid")
    );
    for name in ["reload", "reopen", "drain", "top", "profile"] {
        assert!(invalid_message(&format!("{name} now please")).contains("invalid command"), "{name}");
    }
    // The proxy has no owner any more.
    for line in ["reload", "show servers", "server a/b drain"] {
        assert!(matches!(run(line), Err(CommandError::Failed(_))), "{line}");
    }
}

#[test]
fn changes_of_a_server_are_read() {
    let parse = |text: &str| ServerChange::parse(&text.split(' ').collect::<Vec<_>>());
    assert_eq!(parse("drain"), Ok(Some(ServerChange::AdminState(AdminState::Drain))));
    assert_eq!(parse("weight 0"), Ok(Some(ServerChange::Weight(Some(0)))));
    assert_eq!(parse("weight default"), Ok(Some(ServerChange::Weight(None))));
    assert_eq!(parse("maxconn 7"), Ok(Some(ServerChange::Maxconn(Some(7)))));
    assert_eq!(parse("drain now"), Ok(None));
    assert!(parse("weight -1").is_err() && parse("maxconn x").is_err());
}

#[test]
fn help_and_reference_have_every_command() {
    let (help, reference) = (help(), reference());
    for name in command_names() {
        assert!(help.contains(&format!("  {name}")) && reference.contains(&format!("`{name}")));
    }
    assert_eq!(run("help"), Ok(Some(help)));
}

#[test]
fn the_sockets_are_passed_to_one_process_at_a_time() {
    let context = context();
    let guard = context.upgrade_lock.try_lock();
    assert!(guard.is_some() && context.upgrade_lock.try_lock().is_none());
    let (stream, mut client) = UnixStream::pair().unwrap();
    let run_upgrade = || run_command("upgrade", &context, &stream, PeerCredentials { uid: 0, pid: 1 });
    assert!(matches!(run_upgrade(), Err(CommandError::Failed(text)) if text.contains("another process")));
    drop(guard);
    // If no owner has the sockets, the protocol itself reports the error.
    assert_eq!(run_upgrade(), Ok(None));
    let mut response = [0; 64];
    let read = std::io::Read::read(&mut client, &mut response).unwrap();
    assert!(response[..read].starts_with(b"error: "), "{response:?}");
    assert!(matches!(invalid_message("upgrade now").as_str(), text if text.contains("`upgrade`")));
}

//! From one process to the next without a refused connection: the one at work passes its listening
//! sockets to the one that replaces it, which takes over what its own config wants. Who says what and
//! when is here; how descriptors travel is in [`rt::handover`], what becomes of sockets in
//! `doors`.
//!
//! ```text
//! new                                     old
//! upgrade                  ->
//!                          <-             ok
//!                          <-             {"kind":"listener","door":0,…} and a socket, for each
//!                          <-             end
//! (binds what is new, starts its cores)
//! ready {"taken":[…],…}    ->
//!                          <-             ok: from here on there is no way back
//!                          <-             left: it accepts no more
//! (accepts)                               (finishes what it has)
//! ```
//! All sockets of a door go together: what waits in the queue of one that nobody has any more is
//! reset by the kernel, also where others share its port, unless `net.ipv4.tcp_migrate_req` is set. If
//! the new one leaves before it is ready, the old one has lost nothing: both have the same sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rt::address::Address;
use rt::handover::Talk;
use serde::{Deserialize, Serialize};

/// The command, as the control socket hears it.
pub const COMMAND: &str = "upgrade";
/// How long one side may take for its part, but for getting ready.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the new process may take from getting the sockets to being ready.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// How many sockets are passed at most.
const SOCKETS_MAX: usize = rt::handover::WAITING_MAX;
/// Bytes of the name of a group of processes.
const GROUP_BYTES_MAX: usize = 1024;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Clients.
    Listener,
    /// The admin pages.
    Admin,
    /// The control socket.
    Control,
}

/// What a socket is, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub(crate) kind: Kind,
    pub(crate) door: usize,
    /// As the config has it.
    pub(crate) wanted: String,
    /// As the kernel has it.
    pub(crate) address: String,
    pub(crate) namespace: Option<PathBuf>,
}

/// A socket that can be passed on.
#[derive(Debug)]
pub struct Offer {
    pub(crate) label: Label,
    pub(crate) socket: OwnedFd,
}

/// What the new process has taken over, and who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub(crate) doors: Vec<(Kind, usize)>,
    /// Its id; `None`: the kernel does not say.
    pub process: Option<u32>,
    /// Whether it is in the same group of processes as we, so that a service manager takes both for
    /// the same service.
    pub same_service: bool,
}

impl Taken {
    pub(crate) fn has(&self, kind: Kind, door: usize) -> bool {
        self.doors.contains(&(kind, door))
    }
}

/// What the new process says when it is ready.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    taken: Vec<(Kind, usize)>,
    group: String,
}

/// What the control socket asks of whoever looks after the process.
#[derive(Debug)]
pub enum Demand {
    /// Copies of the listening sockets; nothing is sent when there are to be none.
    Offers(mpsc::SyncSender<Vec<Offer>>),
    /// Another process has these now: accept no more, say so, finish, end.
    Leave(Taken, mpsc::SyncSender<()>),
    /// The other process has left without having taken anything over; all stays as it is.
    Stay,
}

/// Passes the sockets on, to who has said [`COMMAND`]. Whether there is a new process at work now; if
/// there is not, nothing has changed. Meanwhile nobody must close a listening socket that was offered:
/// the other process has it as well, and would see that nobody may come there any more.
///
/// # Errors
/// The other side took too long, left, or said what makes no sense.
pub fn pass_on(stream: UnixStream, demand: &mut dyn FnMut(Demand)) -> io::Result<bool> {
    let own_group = group();
    let mut talk = Talk::new(stream, PATIENCE)?;
    let (reply, offers) = mpsc::sync_channel(1);
    demand(Demand::Offers(reply));
    let Ok(offers) = offers.recv_timeout(PATIENCE) else {
        talk.say("error: this process has been replaced already, or is being stopped")?;
        return Ok(false);
    };
    talk.say("ok")?;
    for offer in &offers {
        talk.give(&serde_json::to_string(&offer.label)?, offer.socket.as_fd())?;
    }
    talk.say("end")?;
    // The copies are on their way.
    drop(offers);
    talk.allow(READY_PATIENCE);
    let line = talk.hear()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let Some(said) = line.strip_prefix("ready ") else {
        talk.say("error: not understood")?;
        return Err(strange(&line));
    };
    let Ready { taken, group } = serde_json::from_str(said).map_err(|_| strange(&line))?;
    let process = talk.peer().ok().and_then(|peer| u32::try_from(peer.process).ok());
    // The new one waits for this before it accepts. One that has left does not get it.
    talk.allow(PATIENCE);
    talk.say("ok")?;
    let same_service = !group.is_empty() && group == own_group;
    let (reply, left) = mpsc::sync_channel(1);
    demand(Demand::Leave(Taken { doors: taken, process, same_service }, reply));
    if left.recv_timeout(PATIENCE).is_ok() {
        // It accepts anyway, only later.
        let _ = talk.say("left");
    }
    Ok(true)
}

/// What a new process got from the one that it replaces, and its way back to it.
#[derive(Debug)]
pub struct Inheritance {
    talk: Talk,
    sets: Vec<Set>,
}

/// All sockets of one door.
#[derive(Debug)]
struct Set {
    label: Label,
    sockets: Vec<OwnedFd>,
    taken: bool,
}

impl Inheritance {
    /// Asks the process whose control socket this is for its listening sockets. `None`: nobody is
    /// there, so that there is nothing to take over.
    ///
    /// # Errors
    /// It cannot be asked, or refused, with the path in the message.
    pub fn ask(control: &Path) -> io::Result<Option<Self>> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", control.display()))
        };
        let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        match UnixStream::connect(control) {
            Ok(stream) => Self::receive(stream).map(Some).map_err(named),
            Err(error) if nobody.contains(&error.kind()) => Ok(None),
            Err(error) => Err(named(error)),
        }
    }

    fn receive(stream: UnixStream) -> io::Result<Self> {
        let mut talk = Talk::new(stream, 2 * PATIENCE)?;
        talk.say(COMMAND)?;
        expect_ok(&mut talk)?;
        let mut sets: Vec<Set> = Vec::new();
        for _ in 0..=SOCKETS_MAX {
            let line = talk.hear()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line == "end" {
                return Ok(Self { talk, sets });
            }
            let label: Label = serde_json::from_str(&line).map_err(|_| strange(&line))?;
            let socket = talk.take().ok_or_else(|| strange(&line))?;
            match sets.iter_mut().find(|set| set.label == label) {
                Some(set) => set.sockets.push(socket),
                None => sets.push(Set { label, sockets: vec![socket], taken: false }),
            }
        }
        Err(io::Error::other("more sockets than can be taken over"))
    }

    /// The sockets that are bound to an address as it stands in a config, with the address that it is.
    pub(crate) fn take(
        &mut self,
        kind: Kind,
        wanted: &Address,
        namespace: Option<&Path>,
    ) -> Option<(Address, Vec<OwnedFd>)> {
        let text = wanted.to_string();
        let fits = |set: &&mut Set| {
            let label = &set.label;
            let same = label.wanted == text || label.address == text;
            !set.taken && label.kind == kind && same && label.namespace.as_deref() == namespace
        };
        let set = self.sets.iter_mut().find(fits)?;
        let address = set.label.address.parse().ok()?;
        set.taken = true;
        Some((address, std::mem::take(&mut set.sockets)))
    }

    /// Closes what was not taken; the other process still has it.
    pub(crate) fn leave_the_rest(&mut self) {
        self.sets.iter_mut().for_each(|set| set.sockets.clear());
    }

    /// Says that we are ready, and waits until the other process accepts no more.
    ///
    /// # Errors
    /// It does not want to, because it has been replaced or is being stopped; or it is gone. One that
    /// is gone accepts nothing either, but whatever ended it may have meant us as well.
    pub(crate) fn ready(mut self) -> io::Result<()> {
        let taken = self.sets.iter().filter(|set| set.taken);
        let taken = taken.map(|set| (set.label.kind, set.label.door)).collect();
        let ready = serde_json::to_string(&Ready { taken, group: group() })?;
        self.talk.allow(PATIENCE);
        self.talk.say(&format!("ready {ready}"))?;
        expect_ok(&mut self.talk)?;
        // Until it has left, both would accept. When it cannot say so any more, we are alone.
        let _ = self.talk.hear();
        Ok(())
    }
}

fn expect_ok(talk: &mut Talk) -> io::Result<()> {
    match talk.hear()?.as_deref() {
        Some("ok") => Ok(()),
        Some(line) => Err(io::Error::other(line.trim_start_matches("error: ").to_owned())),
        None => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the process that was to be replaced has hung up",
        )),
    }
}

fn strange(line: &str) -> io::Error {
    let start: String = line.chars().take(80).collect();
    io::Error::new(io::ErrorKind::InvalidData, format!("not understood: '{start}'"))
}

/// The control group of this process, by which a service manager knows its service; empty when it
/// cannot be read.
fn group() -> String {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let unified = text.lines().find(|line| line.starts_with("0::"));
    unified.filter(|line| line.len() <= GROUP_BYTES_MAX).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn offer(door: usize, wanted: &str, listener: &TcpListener) -> Offer {
        let label = Label {
            kind: Kind::Listener,
            door,
            wanted: wanted.to_owned(),
            address: listener.local_addr().unwrap().to_string(),
            namespace: None,
        };
        Offer { label, socket: listener.as_fd().try_clone_to_owned().unwrap() }
    }

    /// Runs the old side in a thread; what it was told to leave, if it was.
    fn old_side(
        stream: UnixStream,
        offers: Vec<Offer>,
    ) -> std::thread::JoinHandle<(io::Result<bool>, Option<Taken>)> {
        std::thread::spawn(move || {
            let (mut offers, mut left) = (Some(offers), None);
            let mut demand = |demand| match demand {
                Demand::Offers(reply) => drop(offers.take().map(|offers| reply.send(offers))),
                Demand::Leave(taken, reply) => {
                    left = Some(taken);
                    reply.send(()).unwrap();
                }
                Demand::Stay => {}
            };
            let mut talk = Talk::new(stream.try_clone().unwrap(), PATIENCE).unwrap();
            assert_eq!(talk.hear().unwrap().as_deref(), Some(COMMAND));
            let done = pass_on(stream, &mut demand);
            (done, left)
        })
    }

    #[test]
    fn what_is_wanted_is_taken_and_the_rest_left() {
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let offers = vec![
            offer(0, "127.0.0.1:0", &listeners[0]),
            offer(0, "127.0.0.1:0", &listeners[0]),
            offer(4, "127.0.0.1:0", &listeners[1]),
            offer(7, "[::1]:80", &listeners[2]),
        ];
        let (near, far) = UnixStream::pair().unwrap();
        let old = old_side(near, offers);
        let mut got = Inheritance::receive(far).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let mut take = |wanted| got.take(Kind::Listener, wanted, None);
        let (address, sockets) = take(&any).unwrap();
        assert_eq!(address.to_string(), listeners[0].local_addr().unwrap().to_string());
        assert_eq!(sockets.len(), 2);
        // By the address that the kernel chose, too; and no set twice.
        let exact = listeners[1].local_addr().unwrap().to_string().parse().unwrap();
        assert_eq!(take(&exact).unwrap().1.len(), 1);
        assert!(take(&any).is_none() && take(&exact).is_none());
        let other = "[::1]:80".parse().unwrap();
        assert!(got.take(Kind::Admin, &other, None).is_none());
        assert!(got.take(Kind::Listener, &other, Some(Path::new("other"))).is_none());
        got.leave_the_rest();
        got.ready().unwrap();
        let (done, left) = old.join().unwrap();
        assert!(done.unwrap());
        let left = left.unwrap();
        assert_eq!(left.doors, [(Kind::Listener, 0), (Kind::Listener, 4)]);
        assert!(!left.has(Kind::Listener, 7));
        assert_eq!(left.process, Some(std::process::id()));
        // The socket is the same one.
        let _client = TcpStream::connect(listeners[0].local_addr().unwrap()).unwrap();
        TcpListener::from(sockets.into_iter().next().unwrap()).accept().unwrap();
    }

    #[test]
    fn one_that_leaves_before_it_is_ready_changes_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let old = old_side(near, vec![offer(0, "127.0.0.1:0", &listener)]);
        drop(Inheritance::receive(far).unwrap());
        let (done, left) = old.join().unwrap();
        assert!(done.is_err() && left.is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused_on_both_sides() {
        let (near, far) = UnixStream::pair().unwrap();
        let old = old_side(near, Vec::new());
        let mut talk = Talk::new(far, PATIENCE).unwrap();
        talk.say(COMMAND).unwrap();
        assert_eq!(talk.hear().unwrap().as_deref(), Some("ok"));
        assert_eq!(talk.hear().unwrap().as_deref(), Some("end"));
        talk.say("steady").unwrap();
        assert!(talk.hear().unwrap().unwrap().starts_with("error: "));
        assert!(old.join().unwrap().0.is_err());
        for lines in [
            &["error: no"][..],
            &["ok", "{}"],
            &["ok", "{\"kind\":\"admin\",\"door\":0,\"wanted\":\"\",\"address\":\"\"}"],
            &["ok"],
            &[],
        ] {
            let (near, far) = UnixStream::pair().unwrap();
            let mut talk = Talk::new(near, PATIENCE).unwrap();
            for line in lines {
                talk.say(line).unwrap();
            }
            drop(talk);
            assert!(Inheritance::receive(far).is_err(), "{lines:?}");
        }
        assert!(Inheritance::ask(Path::new("/no/such/weir.sock")).unwrap().is_none());
    }
}

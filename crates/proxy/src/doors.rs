//! The addresses that are bound, from outside of the cores: which door belongs to which listener, what
//! is bound anew, taken over from another process, passed on, or closed. Cores have their own copies of
//! the sockets and accept there (`run`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rt::address::Address;
use rt::board::Board;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::listen::{Bound, Listener, Options};
use rt::local::set_access;
use rt::namespace::Namespace;

use crate::handover::{Inheritance, Kind, Label, Offer, Taken};
use crate::plan::{Mode, Plan};
use crate::run::CLOSING_NS;

/// All doors; their numbers are never used again.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    all: Vec<Door>,
    closing: Vec<Closing>,
}

/// A bound address.
#[derive(Debug)]
struct Door {
    /// As the config has it; a port 0 in it is another port each time.
    wanted: Address,
    namespace: Option<PathBuf>,
    /// `None`: it is closed, and its number is not used again.
    bound: Option<Bound>,
    /// Our own copies of its sockets: cores have theirs in other tables, and whoever asks the system
    /// who listens there (`ss -ltnp`) is shown those of the process's first thread only.
    shown: Vec<Listener>,
    listener: usize,
}

/// A door that cores still empty. Its port is not free yet, so that whoever wants it again gets the same
/// sockets.
#[derive(Debug)]
struct Closing {
    door: usize,
    wanted: Address,
    namespace: Option<PathBuf>,
    is: Address,
    sockets: Vec<Listener>,
    closed_ns: u64,
}

/// How long after its cores a door's last copies go.
const CLOSED_LATER_NS: u64 = 20 * MILLISECOND_NS;

impl Doors {
    /// Binds what is wanted and not bound yet.
    pub(crate) fn open(
        &mut self,
        plan: &Plan,
        cores: usize,
        mut inherited: Option<&mut Inheritance>,
    ) -> io::Result<()> {
        let mut wanted_doors = Vec::new();
        for (index, listener) in plan.listeners.iter().enumerate() {
            for address in &listener.bind {
                let namespace = &listener.namespace;
                let known = self.all.iter().enumerate().position(|(at, door)| {
                    door.is_for(address, namespace.as_ref()) && !wanted_doors.contains(&at)
                });
                if let Some(at) = known {
                    wanted_doors.push(at);
                    continue;
                }
                let entered = namespace.as_deref().map(Namespace::open).transpose()?;
                let backlog = listener.admission.backlog;
                let access = listener.unix;
                let options = Options { namespace: entered.as_ref(), backlog, access };
                let passed = inherited.as_mut().and_then(|inherited| {
                    inherited.take(Kind::Listener, address, namespace.as_deref())
                });
                let passed =
                    passed.map_or_else(|| self.revive(address, namespace), |it| Ok(Some(it)));
                let bound = match passed? {
                    Some((is, sockets)) => {
                        let mut bound = Bound::adopt(is, sockets, cores, options)?;
                        // Nobody else may still refuse it: with another process that is settled later.
                        if inherited.is_none() {
                            bound.take_over();
                        }
                        bound
                    }
                    None => Bound::with(address, cores, options)?,
                };
                wanted_doors.push(self.all.len());
                let (wanted, namespace) = (address.clone(), namespace.clone());
                let (bound, shown) = (Some(bound), Vec::new());
                self.all.push(Door { wanted, namespace, bound, shown, listener: index });
            }
        }
        Ok(())
    }

    /// The sockets of a door that was about to close.
    fn revive(
        &self,
        wanted: &Address,
        namespace: &Option<PathBuf>,
    ) -> io::Result<Option<(Address, Vec<OwnedFd>)>> {
        let fits = |closing: &&Closing| {
            closing.wanted == *wanted && closing.namespace == *namespace && !closing.is_any_port()
        };
        let Some(closing) = self.closing.iter().find(fits) else { return Ok(None) };
        let sockets = closing.sockets.iter().map(copy).collect::<io::Result<_>>()?;
        Ok(Some((closing.is.clone(), sockets)))
    }

    /// Gives the files of unix sockets the access rights that a plan has, where they differ from those
    /// of `before`.
    pub(crate) fn set_access(plan: &Plan, before: &Plan) -> io::Result<()> {
        for listener in &plan.listeners {
            for address in &listener.bind {
                let Address::Unix(path) = address else { continue };
                let old = before.listeners.iter().find(|old| old.bind.contains(address));
                if old.is_some_and(|old| old.unix != listener.unix) {
                    set_access(path, listener.unix).map_err(|error| {
                        let text = format!("{address}: cannot change mode or owner: {error}");
                        io::Error::new(error.kind(), text)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// How many there are, for [`Doors::forget_after`].
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Closes those that came after there were so many: their plan does not come into force.
    pub(crate) fn forget_after(&mut self, count: usize) {
        self.all.truncate(count);
        // One of them may have been about to close, and goes on with it.
        self.closing.iter().for_each(|closing| ignore_new(&closing.sockets));
    }

    /// For each door the listener that it belongs to.
    pub(crate) fn listeners(&self) -> Vec<Option<usize>> {
        self.all.iter().map(|door| door.bound.is_some().then_some(door.listener)).collect()
    }

    /// The process that we took over from has left.
    pub(crate) fn take_over(&mut self) {
        self.all.iter_mut().filter_map(|door| door.bound.as_mut()).for_each(Bound::take_over);
    }

    /// Gives cores their listening sockets, which they have not got yet. They have tables of their own,
    /// so that sockets that were bound here are sent.
    pub(crate) fn send(&mut self, board: &Board, cores: usize) -> io::Result<()> {
        for (index, door) in self.all.iter_mut().enumerate() {
            for core in 0..cores {
                while let Some(listener) =
                    door.bound.as_mut().and_then(|bound| bound.take(core, index))
                {
                    board.send_listener(core, &listener)?;
                    door.shown.push(listener);
                }
            }
        }
        Ok(())
    }

    /// Gives the doors that a plan has to their listeners, and has the others closed: the cores empty
    /// their queues, while nobody new may come. Whether there are any.
    pub(crate) fn assign(&mut self, plan: &Plan) -> bool {
        let mut taken = vec![false; self.all.len()];
        for (index, listener) in plan.listeners.iter().enumerate() {
            for address in &listener.bind {
                let fits = |(at, door): (usize, &Door)| {
                    !taken[at] && door.is_for(address, listener.namespace.as_ref())
                };
                if let Some(at) = self.all.iter().enumerate().position(fits) {
                    taken[at] = true;
                    self.all[at].listener = index;
                }
            }
        }
        // Who wanted one of these again has it by now.
        let wanted_again: Vec<Address> = self
            .all
            .iter()
            .filter_map(|door| Some(door.bound.as_ref()?.address().clone()))
            .collect();
        self.closing.retain(|closing| !wanted_again.contains(&closing.is));
        let before = self.closing.len();
        for (number, (door, taken)) in self.all.iter_mut().zip(taken).enumerate() {
            if !taken && let Some(bound) = door.bound.take() {
                ignore_new(&door.shown);
                self.closing.push(Closing {
                    door: number,
                    wanted: door.wanted.clone(),
                    namespace: door.namespace.clone(),
                    is: bound.address().clone(),
                    sockets: std::mem::take(&mut door.shown),
                    closed_ns: now_ns() + CLOSING_NS + CLOSED_LATER_NS,
                });
            }
        }
        self.closing.len() > before
    }

    /// Closes the last copies of doors that the cores have closed.
    pub(crate) fn close_late(&mut self, now_ns: u64) {
        self.closing.retain(|closing| now_ns < closing.closed_ns);
    }

    /// Closes our own copies, because the process drains: the cores empty the queues before they close
    /// theirs, while nobody new may come.
    pub(crate) fn stop_listening(&mut self) {
        for door in &mut self.all {
            ignore_new(&door.shown);
            door.shown.clear();
        }
        self.closing.clear();
    }

    /// Copies of all, for another process; of those that are about to close as well, because it may
    /// want their ports.
    pub(crate) fn offers(&self) -> io::Result<Vec<Offer>> {
        let mut offers = Vec::new();
        let mut offer =
            |door, wanted: &Address, is: &Address, namespace: &Option<PathBuf>, sockets| {
                for socket in sockets {
                    let label = Label {
                        kind: Kind::Listener,
                        door,
                        wanted: wanted.to_string(),
                        address: is.to_string(),
                        namespace: namespace.clone(),
                    };
                    offers.push(Offer { label, socket: copy(socket)? });
                }
                Ok::<_, io::Error>(())
            };
        for (index, door) in self.all.iter().enumerate() {
            if let Some(bound) = &door.bound {
                offer(index, &door.wanted, bound.address(), &door.namespace, &door.shown)?;
            }
        }
        for closing in self.closing.iter().filter(|closing| !closing.is_any_port()) {
            let Closing { door, wanted, namespace, is, sockets, .. } = closing;
            offer(*door, wanted, is, namespace, sockets)?;
        }
        Ok(offers)
    }

    /// Another process accepts at what it has taken: whether it has each door.
    pub(crate) fn leave(&mut self, taken: &Taken) -> Vec<bool> {
        self.closing.clear();
        let leave = |(index, door): (usize, &mut Door)| {
            let is_taken = taken.has(Kind::Listener, index);
            if let (true, Some(bound)) = (is_taken, &mut door.bound) {
                bound.leave_file();
                door.shown.clear();
            }
            is_taken
        };
        self.all.iter_mut().enumerate().map(leave).collect()
    }

    /// Where it listens, as it is shown.
    pub(crate) fn opened(&self, plan: &Plan) -> Vec<Opened> {
        let opened = |door: &Door| {
            let bound = door.bound.as_ref()?;
            let listener = &plan.listeners[door.listener];
            Some(Opened {
                listener: listener.name.clone(),
                address: bound.address().clone(),
                http: listener.mode == Mode::Http,
                accepts: bound.mode().describe(),
            })
        };
        self.all.iter().filter_map(opened).collect()
    }
}

impl Door {
    fn is_for(&self, address: &Address, namespace: Option<&PathBuf>) -> bool {
        let same = self.wanted == *address && self.namespace.as_ref() == namespace;
        same && self.bound.is_some()
    }
}

impl Closing {
    /// Whether its port was any; then nobody can want it again. The file of a unix socket is gone.
    fn is_any_port(&self) -> bool {
        match &self.wanted {
            Address::Tcp(wanted) => wanted.port() == 0,
            Address::Unix(_) => true,
        }
    }
}

/// How connections of an address get to the cores, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The listener's name.
    pub listener: Box<str>,
    /// Where it listens, with the port that the kernel chose.
    pub address: Address,
    /// Whether it speaks HTTP.
    pub http: bool,
    /// How connections get to the cores, in words.
    pub accepts: &'static str,
}

/// The admin pages' address, which has one socket.
#[derive(Debug)]
pub(crate) struct Single {
    wanted: Address,
    bound: Bound,
    /// Our own copy; `None`: another process has it.
    socket: Option<Listener>,
}

impl Single {
    /// Binds it, or takes it over; and the socket of it that is to be used.
    pub(crate) fn open(
        wanted: &Address,
        inherited: Option<&mut Inheritance>,
    ) -> io::Result<(Self, Listener)> {
        let passed = inherited.and_then(|inherited| inherited.take(Kind::Admin, wanted, None));
        let mut bound = match passed {
            Some((address, sockets)) => Bound::adopt(address, sockets, 1, Options::default())?,
            None => Bound::new(wanted, 1)?,
        };
        let listener = bound.take(0, 0).ok_or(io::ErrorKind::NotFound)?;
        let socket = Some(listener.try_clone()?);
        Ok((Self { wanted: wanted.clone(), bound, socket }, listener))
    }

    pub(crate) fn address(&self) -> &Address {
        self.bound.address()
    }

    /// The process that we took over from has left.
    pub(crate) fn take_over(&mut self) {
        self.bound.take_over();
    }

    /// A copy for another process.
    pub(crate) fn offer(&self) -> io::Result<Option<Offer>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let label = Label {
            kind: Kind::Admin,
            door: 0,
            wanted: self.wanted.to_string(),
            address: self.bound.address().to_string(),
            namespace: None,
        };
        Ok(Some(Offer { label, socket: copy(socket)? }))
    }

    /// Another process has it now, if that has taken it; whether it has.
    pub(crate) fn leave(&mut self, taken: &Taken) -> bool {
        let is_taken = taken.has(Kind::Admin, 0);
        if is_taken {
            self.bound.leave_file();
            self.socket = None;
        }
        is_taken
    }
}

fn copy(listener: &Listener) -> io::Result<OwnedFd> {
    listener.as_fd().try_clone_to_owned()
}

fn ignore_new(listeners: &[Listener]) {
    for listener in listeners {
        // Without it, who comes at the very end is reset instead of refused.
        let _ = listener.ignore_new();
    }
}

//! The start of a connection: the PROXY header where a listener wants one. It is believed from
//! trusted peers only, and who is not trusted or sends none is not served.

use std::rc::Rc;
use std::task::{Context, Poll};

use super::{Armed, Conn, State};
use crate::core::{Bench, Core};
use crate::metrics::Reason;
use crate::outcome::End;
use crate::plan::Mode;
use crate::proxy_protocol::{self, HEADER_BYTES_MAX, Header};

/// What the start of a connection turned out to be.
enum Greeting {
    Known,
    More,
    Refused,
}

impl Conn {
    /// Waits for a PROXY header where there is to be one, and begins what the listener speaks.
    pub(super) fn poll_greeting(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
    ) -> Poll<State> {
        while self.link.settings.plan.proxy_protocol {
            match self.read_greeting(cx, core, bench) {
                Poll::Ready(Greeting::Known) => break,
                Poll::Ready(Greeting::Refused) => {
                    let trusted = self.link.peer.trusted;
                    core.refused(if trusted { Reason::ProxyHeader } else { Reason::Untrusted });
                    let bytes = self.link.held.len();
                    let end = Err(End::BadProxyHeader);
                    return Poll::Ready(self.refuse(cx, core, bench, end, bytes));
                }
                Poll::Ready(Greeting::More) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        self.link.armed = Armed::Nothing;
        self.link.end_request();
        // Only now is it known whose it is.
        if self.link.settings.plan.proxy_protocol
            && !self.link.is_turned()
            && let State::Closed = Self::seated(&mut self.link, State::Idle)
        {
            return Poll::Ready(State::Closed);
        }
        match self.link.settings.plan.mode {
            Mode::Http => Poll::Ready(State::Idle),
            Mode::Tcp(_) => Poll::Ready(self.begin_tcp(cx, core, bench)),
        }
    }

    fn read_greeting(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        bench: &mut Bench,
    ) -> Poll<Greeting> {
        if !self.link.peer.trusted {
            return Poll::Ready(Greeting::Refused);
        }
        let room = bench.input.len() - self.link.held.len();
        let read = match self.link.stream.poll_read(cx, &mut bench.input[..room]) {
            Poll::Ready(Ok(read)) if read > 0 => read,
            Poll::Ready(_) => return Poll::Ready(Greeting::Refused),
            Poll::Pending => {
                let head_ns = self.link.patience_ns(self.link.settings.plan.timeouts.head_ns);
                let late = self.link.is_late(cx, core, Armed::Greeting, head_ns);
                return if late { Poll::Ready(Greeting::Refused) } else { Poll::Pending };
            }
        };
        if !self.link.hold(core, &bench.input[..read]) {
            return Poll::Ready(Greeting::Refused);
        }
        let (greeting, used) = match proxy_protocol::parse(self.link.held.bytes()) {
            proxy_protocol::Parsed::Complete { header, bytes } => {
                if let Header::Proxied { source, destination } = header {
                    self.link.peer = self.link.settings.peer(Some(source));
                    self.link.note_destination(destination);
                }
                (Greeting::Known, bytes)
            }
            proxy_protocol::Parsed::Incomplete if self.link.held.len() < HEADER_BYTES_MAX => {
                (Greeting::More, 0)
            }
            _ => (Greeting::Refused, 0),
        };
        self.link.held.consume(used);
        Poll::Ready(greeting)
    }
}

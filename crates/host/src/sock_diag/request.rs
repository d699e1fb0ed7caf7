//! What is asked of `sock_diag`: states, extensions, and a filter by port that the kernel runs.
//!
//! Pure. Source: `include/uapi/linux/inet_diag.h`; what filters mean and which the kernel takes:
//! `inet_diag_bc_run` and `inet_diag_bc_audit` in `net/ipv4/inet_diag.c`.

use crate::netlink::message::push_attribute;

use super::row::State;

/// `TCPDIAG_GETSOCK`: the one request that is for IPv4 and IPv6 at once; `ss` makes the same. With
/// `SOCK_DIAG_BY_FAMILY` there would be two, and each goes through the machine's whole hash table of
/// connections, which is where most of the time of a snapshot of few sockets goes.
pub(crate) const GET_TCP: u16 = 18;
/// `struct inet_diag_req`.
pub(crate) const REQUEST_BYTES: usize = 60;
/// Where in it `idiag_states` is.
const STATES_AT: usize = 52;
/// Ports that one filter takes. The kernel checks a filter in time that grows with its square.
pub const MAX_PORTS: usize = 64;

/// `INET_DIAG_REQ_BYTECODE`.
const BYTECODE: u16 = 1;
const BC_JUMP: u8 = 1;
const BC_SOURCE_EQUALS: u8 = 11;
const BC_DESTINATION_EQUALS: u8 = 12;
/// `struct inet_diag_bc_op`, of which a comparison with a port takes two.
const OP_BYTES: usize = 4;
/// A comparison and the jump that follows it when it holds.
const TEST_BYTES: usize = 3 * OP_BYTES;

/// `INET_DIAG_INFO` and `INET_DIAG_SKMEMINFO`, as bits of `idiag_ext`.
const INFO: u8 = 1 << (2 - 1);
const SOCKET_MEMORY: u8 = 1 << (7 - 1);

/// What to tell of each socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Addresses, state, queues and inode.
    Plain,
    /// And `tcp_info`, and what memory it holds.
    Full,
}

/// Writes the body of a request for the TCP sockets that are in one of `states` and have one of `ports`
/// at either end; no ports: all sockets. At most [`MAX_PORTS`] are looked at.
pub(crate) fn write(
    into: &mut Vec<u8>,
    states: impl IntoIterator<Item = State>,
    detail: Detail,
    ports: &[u16],
) {
    into.clear();
    let extensions = if detail == Detail::Full { INFO | SOCKET_MEMORY } else { 0 };
    into.extend([0, 0, 0, extensions]);
    // No address, port, interface or cookie: only the filter chooses.
    into.resize(STATES_AT, 0);
    let bits = states.into_iter().fold(0_u32, |bits, state| bits | 1 << state.number());
    into.extend(bits.to_ne_bytes());
    into.resize(REQUEST_BYTES, 0);
    if !ports.is_empty() {
        push_attribute(into, BYTECODE, &filter(&ports[..ports.len().min(MAX_PORTS)]));
    }
}

/// The filter "the local or the remote port is one of these".
///
/// Each test is a comparison of two ops, its `yes` leading to a jump to the end (which accepts), its
/// `no` to the next test; the last `no` leads four bytes beyond the end, which refuses. The long way
/// round is needed because `yes` has eight bits only. The comparisons are known since Linux 4.16.
fn filter(ports: &[u16]) -> Vec<u8> {
    let tests = ports.len() * 2;
    let mut code = Vec::with_capacity(tests * TEST_BYTES);
    for (at, port) in ports.iter().enumerate() {
        for (which, comparison) in [BC_SOURCE_EQUALS, BC_DESTINATION_EQUALS].iter().enumerate() {
            let left = (tests - at * 2 - which) * TEST_BYTES;
            let last = left == TEST_BYTES;
            let no = if last { left + OP_BYTES } else { TEST_BYTES };
            push_op(&mut code, *comparison, 2 * OP_BYTES, no);
            push_op(&mut code, 0, 0, usize::from(*port));
            push_op(&mut code, BC_JUMP, OP_BYTES, left - 2 * OP_BYTES);
        }
    }
    code
}

fn push_op(code: &mut Vec<u8>, comparison: u8, yes: usize, no: usize) {
    code.extend([comparison, yes as u8]);
    code.extend((no as u16).to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::{Attributes, u16_at};

    /// `inet_diag_bc_run`, for the ops that are used here.
    fn run(code: &[u8], source: u16, destination: u16) -> bool {
        let mut at = 0_usize;
        while at < code.len() {
            let port = || u16_at(code, at + 6).unwrap();
            let yes = match code[at] {
                BC_JUMP => false,
                BC_SOURCE_EQUALS => source == port(),
                BC_DESTINATION_EQUALS => destination == port(),
                other => panic!("op {other}"),
            };
            at +=
                if yes { code[at + 1].into() } else { usize::from(u16_at(code, at + 2).unwrap()) };
        }
        at == code.len()
    }

    /// `inet_diag_bc_audit`: steps forward by `yes`, and `no` leads to a step or four beyond the end.
    fn audit(code: &[u8]) -> bool {
        let mut steps = vec![];
        let mut at = 0;
        while at < code.len() {
            steps.push(at);
            at += usize::from(code[at + 1]);
        }
        steps.push(code.len());
        steps.push(code.len() + 4);
        let lands = |at: &usize| {
            let no = usize::from(u16_at(code, at + 2).unwrap());
            no >= 4 && no % 4 == 0 && steps.contains(&(at + no))
        };
        at == code.len() && steps.iter().take(steps.len() - 2).all(lands)
    }

    #[test]
    fn the_filter_takes_either_end_and_nothing_else() {
        for ports in [vec![80], vec![80, 8080], (1000..1064).collect::<Vec<u16>>()] {
            let code = filter(&ports);
            assert!(audit(&code), "{ports:?}");
            for port in &ports {
                assert!(run(&code, *port, 9) && run(&code, 9, *port), "{port} of {ports:?}");
            }
            assert!(!run(&code, 9, 9) && !run(&code, 0, 65535), "{ports:?}");
        }
    }

    #[test]
    fn a_request_has_its_fixed_part_and_then_the_filter() {
        let mut bytes = vec![1; 3];
        let states = [State::Established, State::Listen];
        write(&mut bytes, states, Detail::Full, &[80]);
        assert_eq!(bytes[..4], [0, 0, 0, 0x42]);
        assert_eq!(bytes[STATES_AT..STATES_AT + 4], ((1_u32 << 1) | (1 << 10)).to_ne_bytes());
        assert_eq!(Attributes::new(&bytes, REQUEST_BYTES).find(1), Some(&filter(&[80])[..]));
        write(&mut bytes, [], Detail::Plain, &[]);
        assert_eq!(bytes, [0; REQUEST_BYTES]);
        write(&mut bytes, [], Detail::Plain, &[7; MAX_PORTS + 1]);
        assert_eq!(bytes.len(), REQUEST_BYTES + 4 + MAX_PORTS * 2 * TEST_BYTES);
    }
}

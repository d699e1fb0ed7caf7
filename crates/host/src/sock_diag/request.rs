//! Requests to `sock_diag`: states, extensions, and a filter by port that the kernel runs.
//!
//! No I/O. Source: `include/uapi/linux/inet_diag.h`; meaning and checks of filters:
//! `inet_diag_bc_run` and `inet_diag_bc_audit` in `net/ipv4/inet_diag.c`.

use crate::netlink::message::push_attribute;

use super::tcp_socket::TcpState;

/// `TCPDIAG_GETSOCK`: the only request for IPv4 and IPv6 at once; `ss` uses the same.
/// `SOCK_DIAG_BY_FAMILY` would need two, and each walks the machine's complete hash table of
/// connections. That walk is most of the cost of a snapshot of few sockets.
pub(crate) const TCPDIAG_GETSOCK: u16 = 18;
/// `struct inet_diag_req`.
pub(crate) const REQUEST_BYTES: usize = 60;
/// Offset of `idiag_states` in it.
const STATES_AT: usize = 52;
/// Maximum number of ports in one filter. The kernel checks a filter in time quadratic in its size.
pub const MAX_PORTS: usize = 64;

const INET_DIAG_REQ_BYTECODE: u16 = 1;
const INET_DIAG_BC_JMP: u8 = 1;
const INET_DIAG_BC_S_EQ: u8 = 11;
const INET_DIAG_BC_D_EQ: u8 = 12;
/// `struct inet_diag_bc_op`, of which a comparison with a port takes two.
const OP_BYTES: usize = 4;
/// A comparison and the jump that follows it when it holds.
const TEST_BYTES: usize = 3 * OP_BYTES;

/// `INET_DIAG_INFO` and `INET_DIAG_SKMEMINFO`, as bits of `idiag_ext`.
const INFO_BIT: u8 = 1 << (2 - 1);
const SKMEMINFO_BIT: u8 = 1 << (7 - 1);

/// Detail level of the reported sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Addresses, state, queues and inode.
    Plain,
    /// Also `tcp_info`, and the memory of the socket.
    Full,
}

/// Writes the body of a request for the TCP sockets in one of `states` with one of `ports` at
/// either end; no ports: all sockets. At most [`MAX_PORTS`] ports are used.
pub(crate) fn write_request(
    into: &mut Vec<u8>,
    states: impl IntoIterator<Item = TcpState>,
    detail: Detail,
    ports: &[u16],
) {
    into.clear();
    let extensions = if detail == Detail::Full { INFO_BIT | SKMEMINFO_BIT } else { 0 };
    into.extend([0, 0, 0, extensions]);
    // No address, port, interface or cookie: only the filter selects.
    into.resize(STATES_AT, 0);
    let bits = states.into_iter().fold(0_u32, |bits, state| bits | 1 << state.number());
    into.extend(bits.to_ne_bytes());
    into.resize(REQUEST_BYTES, 0);
    if !ports.is_empty() {
        push_attribute(into, INET_DIAG_REQ_BYTECODE, &port_filter(&ports[..ports.len().min(MAX_PORTS)]));
    }
}

/// Builds the filter "the local or the remote port is one of these".
///
/// Each test is a comparison of two ops. Its `yes` leads to a jump to the end (which accepts), its
/// `no` to the next test. The last `no` leads four bytes beyond the end, which rejects. The
/// indirect jump is needed because `yes` has only eight bits. The comparisons exist since Linux
/// 4.16.
fn port_filter(ports: &[u16]) -> Vec<u8> {
    let tests = ports.len() * 2;
    let mut code = Vec::with_capacity(tests * TEST_BYTES);
    for (at, port) in ports.iter().enumerate() {
        for (which, comparison) in [INET_DIAG_BC_S_EQ, INET_DIAG_BC_D_EQ].iter().enumerate() {
            let left = (tests - at * 2 - which) * TEST_BYTES;
            let last = left == TEST_BYTES;
            let no = if last { left + OP_BYTES } else { TEST_BYTES };
            push_op(&mut code, *comparison, 2 * OP_BYTES, no);
            push_op(&mut code, 0, 0, usize::from(*port));
            push_op(&mut code, INET_DIAG_BC_JMP, OP_BYTES, left - 2 * OP_BYTES);
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
    use crate::netlink::message::{NetlinkAttributes, u16_at};

    /// `inet_diag_bc_run`, for the ops that are used here.
    fn run(code: &[u8], source: u16, destination: u16) -> bool {
        let mut at = 0_usize;
        while at < code.len() {
            let port = || u16_at(code, at + 6).unwrap();
            let yes = match code[at] {
                INET_DIAG_BC_JMP => false,
                INET_DIAG_BC_S_EQ => source == port(),
                INET_DIAG_BC_D_EQ => destination == port(),
                other => panic!("op {other}"),
            };
            at += if yes { code[at + 1].into() } else { usize::from(u16_at(code, at + 2).unwrap()) };
        }
        at == code.len()
    }

    /// `inet_diag_bc_audit`: steps forward by `yes`; `no` leads to a step or four beyond the end.
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
            let code = port_filter(&ports);
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
        let states = [TcpState::Established, TcpState::Listen];
        write_request(&mut bytes, states, Detail::Full, &[80]);
        assert_eq!(bytes[..4], [0, 0, 0, 0x42]);
        assert_eq!(bytes[STATES_AT..STATES_AT + 4], ((1_u32 << 1) | (1 << 10)).to_ne_bytes());
        assert_eq!(NetlinkAttributes::new(&bytes, REQUEST_BYTES).find(1), Some(&port_filter(&[80])[..]));
        write_request(&mut bytes, [], Detail::Plain, &[]);
        assert_eq!(bytes, [0; REQUEST_BYTES]);
        write_request(&mut bytes, [], Detail::Plain, &[7; MAX_PORTS + 1]);
        assert_eq!(bytes.len(), REQUEST_BYTES + 4 + MAX_PORTS * 2 * TEST_BYTES);
    }
}

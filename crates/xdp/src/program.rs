//! XDP program that gives the TCP packets of some addresses and ports to AF_XDP sockets, as instructions of eBPF (RFC
//! 9669). All else goes to the kernel: other protocols, VLAN tags, IP options, extension headers and fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

/// Action of a program that leaves a packet to the kernel (`XDP_PASS`).
pub const PASS: i32 = 2;
/// Maximum number of rules: each costs a packet up to five comparisons, or eleven with IPv6.
pub const RULES_MAX: usize = 16;

/// Packets that a program takes from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Destination address.
    pub local: IpAddr,
    /// Destination ports.
    pub ports: RangeInclusive<u16>,
    /// Source address and port; `None`: any.
    pub remote: Option<SocketAddr>,
}

/// Instruction of eBPF: opcode, registers, offset and immediate value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    opcode: u8,
    /// Destination register in the lower four bits, source register above.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(opcode: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Self {
        Self { opcode, registers: destination | (source << 4), offset, immediate }
    }

    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        let (offset, immediate) = (self.offset.to_ne_bytes(), self.immediate.to_ne_bytes());
        let [a, b, c, d] = immediate;
        [self.opcode, self.registers, offset[0], offset[1], a, b, c, d]
    }
}

const LOAD_32: u8 = 0x61;
const LOAD_16: u8 = 0x69;
const LOAD_8: u8 = 0x71;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const MOVE_64: u8 = 0xbf;
const MOVE_64_IMMEDIATE: u8 = 0xb7;
const ADD_64: u8 = 0x07;
const AND_64: u8 = 0x57;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_IF_GREATER_64: u8 = 0x2d;
const JUMP_IF_NOT_EQUAL_32: u8 = 0x56;
const JUMP_IF_LESS_32: u8 = 0xa6;
const JUMP_IF_GREATER_32: u8 = 0x26;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Source register of [`LOAD_IMMEDIATE_64`] for which the value is the descriptor of a map (`BPF_PSEUDO_MAP_FD`).
const MAP_DESCRIPTOR: u8 = 1;
/// Number of `bpf_redirect_map` (bpf-helpers(7)).
const REDIRECT_MAP: i32 = 51;

/// Bytes that the program reads: Ethernet, IPv4 and TCP without options.
const IPV4_HEADER_BYTES: i32 = 54;
/// The same with IPv6.
const IPV6_HEADER_BYTES: i32 = 74;

/// Place that a jump leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    /// The next rule.
    Next,
    /// The checks of IPv6.
    Ipv6,
    /// The packet goes to the kernel.
    Pass,
    /// The packet goes to the socket of its queue.
    Redirect,
}

#[derive(Debug, Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    /// Jumps without their offset.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }

    fn jump(&mut self, opcode: u8, destination: u8, source: u8, immediate: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(Instruction::new(opcode, destination, source, 0, immediate));
    }

    /// Lets all open jumps to `label` lead to the next instruction.
    fn place(&mut self, label: Label) {
        let target = self.instructions.len();
        for (at, _) in self.jumps.extract_if(.., |(_, jump)| *jump == label) {
            // A program of 16 rules has far fewer than 32,768 instructions.
            self.instructions[at].offset = (target - at - 1) as i16;
        }
    }

    /// Adds the check that a packet has this many bytes: r2 is its start, r3 its end.
    fn check_length(&mut self, bytes: i32) {
        self.push(Instruction::new(MOVE_64, 4, 2, 0, 0));
        self.push(Instruction::new(ADD_64, 4, 0, 0, bytes));
        self.jump(JUMP_IF_GREATER_64, 4, 3, 0, Label::Pass);
    }

    /// Adds the checks of the headers of IPv4; then r5 and r7 have the destination, r8 and r9 the source. Other types of
    /// frames go to `other`.
    fn load_ipv4(&mut self, other: Label) {
        self.push(Instruction::new(LOAD_32, 2, 1, 0, 0));
        self.push(Instruction::new(LOAD_32, 3, 1, 4, 0));
        self.check_length(IPV4_HEADER_BYTES);
        self.push(Instruction::new(LOAD_16, 5, 2, 12, 0));
        self.jump(JUMP_IF_NOT_EQUAL_32, 5, 0, network_16(0x0800), other);
        self.push(Instruction::new(LOAD_8, 5, 2, 14, 0));
        self.jump(JUMP_IF_NOT_EQUAL_32, 5, 0, 0x45, Label::Pass);
        self.push(Instruction::new(LOAD_16, 5, 2, 20, 0));
        self.push(Instruction::new(AND_64, 5, 0, 0, network_16(0x3fff)));
        self.jump(JUMP_IF_NOT_EQUAL_32, 5, 0, 0, Label::Pass);
        self.push(Instruction::new(LOAD_8, 5, 2, 23, 0));
        self.jump(JUMP_IF_NOT_EQUAL_32, 5, 0, 6, Label::Pass);
        self.push(Instruction::new(LOAD_32, 5, 2, 30, 0));
        self.push(Instruction::new(LOAD_16, 7, 2, 36, 0));
        self.push(Instruction::new(TO_BIG_ENDIAN, 7, 0, 0, 16));
        self.push(Instruction::new(LOAD_32, 8, 2, 26, 0));
        self.push(Instruction::new(LOAD_16, 9, 2, 34, 0));
        self.push(Instruction::new(TO_BIG_ENDIAN, 9, 0, 0, 16));
    }

    /// Adds the checks of the headers of IPv6, behind those of the type of IPv4; then r7 has the destination port, r9 the
    /// source port.
    fn load_ipv6(&mut self) {
        self.place(Label::Ipv6);
        self.jump(JUMP_IF_NOT_EQUAL_32, 5, 0, network_16(0x86dd), Label::Pass);
        self.check_length(IPV6_HEADER_BYTES);
        self.push(Instruction::new(LOAD_8, 5, 2, 14, 0));
        self.push(Instruction::new(AND_64, 5, 0, 0, 0xf0));
        self.jump(JUMP_IF_NOT_EQUAL_32, 5, 0, 0x60, Label::Pass);
        // TCP follows at once: extension headers are left to the kernel.
        self.push(Instruction::new(LOAD_8, 5, 2, 20, 0));
        self.jump(JUMP_IF_NOT_EQUAL_32, 5, 0, 6, Label::Pass);
        self.push(Instruction::new(LOAD_16, 7, 2, 56, 0));
        self.push(Instruction::new(TO_BIG_ENDIAN, 7, 0, 0, 16));
        self.push(Instruction::new(LOAD_16, 9, 2, 54, 0));
        self.push(Instruction::new(TO_BIG_ENDIAN, 9, 0, 0, 16));
    }

    fn match_ipv4(&mut self, local: Ipv4Addr, remote: Option<IpAddr>, rule: &Rule) {
        self.jump(JUMP_IF_NOT_EQUAL_32, 5, 0, network_32(local), Label::Next);
        if let Some(IpAddr::V4(remote)) = remote {
            self.jump(JUMP_IF_NOT_EQUAL_32, 8, 0, network_32(remote), Label::Next);
        }
        self.match_ports(rule);
    }

    fn match_ipv6(&mut self, local: Ipv6Addr, remote: Option<IpAddr>, rule: &Rule) {
        self.match_address(38, local);
        if let Some(IpAddr::V6(remote)) = remote {
            self.match_address(22, remote);
        }
        self.match_ports(rule);
    }

    /// Adds the comparison of an address of IPv6 at an offset of the packet.
    fn match_address(&mut self, offset: i16, address: Ipv6Addr) {
        for (at, word) in (offset..).step_by(4).zip(address.octets().as_chunks::<4>().0) {
            self.push(Instruction::new(LOAD_32, 8, 2, at, 0));
            self.jump(JUMP_IF_NOT_EQUAL_32, 8, 0, i32::from_ne_bytes(*word), Label::Next);
        }
    }

    fn match_ports(&mut self, rule: &Rule) {
        self.jump(JUMP_IF_LESS_32, 7, 0, i32::from(*rule.ports.start()), Label::Next);
        self.jump(JUMP_IF_GREATER_32, 7, 0, i32::from(*rule.ports.end()), Label::Next);
        if let Some(remote) = rule.remote {
            self.jump(JUMP_IF_NOT_EQUAL_32, 9, 0, i32::from(remote.port()), Label::Next);
        }
        self.jump(JUMP, 0, 0, 0, Label::Redirect);
        self.place(Label::Next);
    }
}

fn network_16(value: u16) -> i32 {
    i32::from(value.to_be())
}

fn network_32(address: Ipv4Addr) -> i32 {
    i32::from_ne_bytes(address.octets())
}

/// Returns the program for at most [`RULES_MAX`] rules; further ones are ignored. `map` is the descriptor of the map of
/// sockets, by queue.
#[must_use]
pub fn assemble(rules: &[Rule], map: i32) -> Vec<Instruction> {
    let mut assembler = Assembler::default();
    let remote_of = |rule: &Rule| rule.remote.map(|remote| remote.ip());
    let has_ipv6 = rules.iter().take(RULES_MAX).any(|rule| rule.local.is_ipv6());
    assembler.load_ipv4(if has_ipv6 { Label::Ipv6 } else { Label::Pass });
    for rule in rules.iter().take(RULES_MAX) {
        if let IpAddr::V4(local) = rule.local {
            assembler.match_ipv4(local, remote_of(rule), rule);
        }
    }
    if has_ipv6 {
        assembler.jump(JUMP, 0, 0, 0, Label::Pass);
        assembler.load_ipv6();
        for rule in rules.iter().take(RULES_MAX) {
            if let IpAddr::V6(local) = rule.local {
                assembler.match_ipv6(local, remote_of(rule), rule);
            }
        }
    }
    assembler.place(Label::Pass);
    assembler.push(Instruction::new(MOVE_64_IMMEDIATE, 0, 0, 0, PASS));
    assembler.push(Instruction::new(EXIT, 0, 0, 0, 0));
    assembler.place(Label::Redirect);
    assembler.push(Instruction::new(LOAD_32, 2, 1, 16, 0));
    assembler.push(Instruction::new(LOAD_IMMEDIATE_64, 1, MAP_DESCRIPTOR, 0, map));
    assembler.push(Instruction::new(0, 0, 0, 0, 0));
    // A queue without a socket leaves its packets to the kernel.
    assembler.push(Instruction::new(MOVE_64_IMMEDIATE, 3, 0, 0, PASS));
    assembler.push(Instruction::new(CALL, 0, 0, 0, REDIRECT_MAP));
    assembler.push(Instruction::new(EXIT, 0, 0, 0, 0));
    assembler.instructions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::testing::frame;

    /// Result of [`run`] for a packet that goes to a socket.
    const REDIRECTED: i64 = 4;

    /// Runs a program on a packet: an interpreter of the instructions that it has.
    fn run(program: &[Instruction], packet: &[u8]) -> i64 {
        const DATA: i64 = 1 << 32;
        let mut registers = [0_i64; 11];
        let mut at = 0;
        loop {
            let Instruction { opcode, registers: pair, offset, immediate } = program[at];
            let (destination, source) = (usize::from(pair & 15), usize::from(pair >> 4));
            let (left, wide) = (registers[destination], registers[source]);
            at += 1;
            let bytes = |count: usize| {
                let start = (wide - DATA) as usize + offset as usize;
                packet[start..start + count].iter().rev().fold(0, |sum, byte| (sum << 8) | i64::from(*byte))
            };
            let low = left as u32;
            let jumps = match opcode {
                LOAD_32 if source == 1 => {
                    registers[destination] =
                        [DATA, DATA + packet.len() as i64, 0, 0, 0][usize::from(offset as u16 / 4)];
                    false
                }
                LOAD_32 | LOAD_16 | LOAD_8 => {
                    registers[destination] = bytes(match opcode {
                        LOAD_32 => 4,
                        LOAD_16 => 2,
                        _ => 1,
                    });
                    false
                }
                MOVE_64 => {
                    registers[destination] = wide;
                    false
                }
                MOVE_64_IMMEDIATE => {
                    registers[destination] = i64::from(immediate);
                    false
                }
                ADD_64 => {
                    registers[destination] = left + i64::from(immediate);
                    false
                }
                AND_64 => {
                    registers[destination] = left & i64::from(immediate);
                    false
                }
                TO_BIG_ENDIAN => {
                    registers[destination] = i64::from((left as u16).to_be());
                    false
                }
                LOAD_IMMEDIATE_64 => {
                    at += 1;
                    false
                }
                CALL => {
                    registers[0] = REDIRECTED;
                    false
                }
                JUMP => true,
                JUMP_IF_GREATER_64 => left > wide,
                JUMP_IF_NOT_EQUAL_32 => low != immediate as u32,
                JUMP_IF_LESS_32 => low < immediate as u32,
                JUMP_IF_GREATER_32 => low > immediate as u32,
                EXIT => return registers[0],
                other => panic!("{other:#x}"),
            };
            if jumps {
                at += offset as usize;
            }
        }
    }

    fn rules() -> Vec<Rule> {
        let local = "10.0.0.1".parse().unwrap();
        vec![
            Rule { local, ports: 80..=81, remote: None },
            Rule {
                local: "10.0.255.200".parse().unwrap(),
                ports: 20_000..=29_999,
                remote: Some("10.0.0.2:8000".parse().unwrap()),
            },
            Rule { local: "fd00::1".parse().unwrap(), ports: 80..=80, remote: None },
            Rule {
                local: "fd00::2".parse().unwrap(),
                ports: 20_000..=29_999,
                remote: Some("[fd00::3]:8000".parse().unwrap()),
            },
        ]
    }

    #[test]
    fn only_packets_of_a_rule_are_taken() {
        let program = assemble(&rules(), 7);
        for (from, to, is_taken) in [
            ("10.0.0.2:1000", "10.0.0.1:80", true),
            ("192.168.1.2:1000", "10.0.0.1:81", true),
            ("10.0.0.2:1000", "10.0.0.1:79", false),
            ("10.0.0.2:1000", "10.0.0.1:82", false),
            ("10.0.0.2:1000", "10.0.0.3:80", false),
            ("10.0.0.2:8000", "10.0.255.200:20000", true),
            ("10.0.0.2:8000", "10.0.255.200:29999", true),
            ("10.0.0.2:8000", "10.0.255.200:30000", false),
            ("10.0.0.2:8001", "10.0.255.200:20000", false),
            ("10.0.0.3:8000", "10.0.255.200:20000", false),
            ("10.0.0.2:8000", "10.0.255.200:80", false),
            ("[fd00::9]:1000", "[fd00::1]:80", true),
            ("[fd00::9]:1000", "[fd00::1]:81", false),
            ("[fd00::9]:1000", "[fd00::1:1]:80", false),
            ("[fd00::9]:1000", "[fd01::1]:80", false),
            ("[fd00::3]:8000", "[fd00::2]:20000", true),
            ("[fd00::3]:8001", "[fd00::2]:20000", false),
            ("[fd00::4]:8000", "[fd00::2]:20000", false),
            ("[fd00::3]:8000", "[fd00::2]:19999", false),
        ] {
            let expected = if is_taken { REDIRECTED } else { i64::from(PASS) };
            assert_eq!(run(&program, &frame(from, to, 16, b"")), expected, "{from} {to}");
        }
    }

    #[test]
    fn other_packets_go_to_the_kernel() {
        let program = assemble(&rules(), 7);
        let good = frame("[fd00::2]:1000", "[fd00::1]:80", 16, b"");
        assert_eq!(run(&assemble(&rules()[..1], 7), &good), i64::from(PASS));
        // Type, version, hop-by-hop options, fragment, UDP.
        for (at, value) in [(12, 0x81), (13, 0xde), (14, 0x40), (20, 0), (20, 44), (20, 17)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(run(&program, &bytes), i64::from(PASS), "{at} {value}");
        }
        for length in 0..good.len() {
            assert_eq!(run(&program, &good[..length]), i64::from(PASS), "{length}");
        }
        let good = frame("10.0.0.2:1000", "10.0.0.1:80", 16, b"");
        // VLAN or IPv6, options, more fragments, offset, UDP.
        for (at, value) in [(12, 0x81), (12, 0x86), (13, 0xdd), (14, 0x46), (20, 0x20), (21, 1), (23, 17)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(run(&program, &bytes), i64::from(PASS), "{at} {value}");
        }
        for length in 0..good.len() {
            assert_eq!(run(&program, &good[..length]), i64::from(PASS), "{length}");
        }
        let mut do_not_fragment = good;
        do_not_fragment[20] = 0x40;
        assert_eq!(run(&program, &do_not_fragment), REDIRECTED);
    }

    #[test]
    fn the_encoding_is_that_of_the_kernel() {
        let program = assemble(&rules()[..1], 7);
        assert_eq!(program.len(), 20 + 4 + 2 + 6);
        assert_eq!(program[0].encode(), [0x61, 0x12, 0, 0, 0, 0, 0, 0]);
        assert_eq!(program[27].encode(), [0x18, 0x11, 0, 0, 7, 0, 0, 0]);
        assert_eq!(program.last().unwrap().encode(), [0x95, 0, 0, 0, 0, 0, 0, 0]);
    }
}

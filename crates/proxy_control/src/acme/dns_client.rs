//! Client of name servers for DNS-01: one TCP connection for each request, with a maximum time.

use std::io;
use std::time::Duration;

use rt::address::Address;
use rt::clock::{MonotonicTime, SECOND_NS, unix_ns};
use rt::stream::Stream;
use rt::timers::Timers;

use super::blocking::look_up;
use crate::dns::tsig::{TsigError, TsigKey};
use crate::dns::update::{
    ResponseError, TooLong, TxtChange, ZoneRecord, ZoneRecordType, ZoneResponse, describe_code,
    encode_recursive_question, encode_update, encode_zone_question, parse_response,
};

/// Maximum time of a request, from the look-up of the server to the end of the response.
const REQUEST_NS: u64 = 10 * SECOND_NS;
/// Maximum number of names above a name that are asked for their zone.
const ZONE_QUESTIONS_MAX: usize = 16;
/// Maximum number of name servers of a zone that are asked.
const NAME_SERVERS_MAX: usize = 16;

/// Reason why a name server did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum DnsError {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("cannot reach it: {0}")]
    Io(#[from] io::Error),
    #[error("no complete response within {} s", Duration::from_nanos(REQUEST_NS).as_secs())]
    Timeout,
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error("{}", describe_code(*.0))]
    Code(u8),
    #[error(transparent)]
    Signature(#[from] TsigError),
    #[error("it has no zone for {0}: set zone, or check server")]
    NoZone(Box<str>),
    #[error("the zone {0} has no name servers")]
    NoNameServers(Box<str>),
}

pub(super) struct DnsServer<'a> {
    /// Host or address with a port.
    pub(super) authority: &'a str,
    pub(super) timers: &'a Timers,
}

impl DnsServer<'_> {
    /// Changes a record of a zone with a signed request, and checks the signature of the response.
    pub(super) async fn update(
        &self,
        zone: &str,
        change: TxtChange<'_>,
        key: &TsigKey,
    ) -> Result<(), DnsError> {
        let id = fastrand::u16(..);
        let mut message = encode_update(id, zone, change)?;
        let signature = key.sign(&mut message, unix_ns() / SECOND_NS)?;
        let bytes = self.exchange(&message).await?;
        let response = parse_response(&bytes, id)?;
        match (key.verify(&bytes, &signature, unix_ns() / SECOND_NS), response.code) {
            (Ok(()), 0) => Ok(()),
            // The server may refuse the request before it knows the key.
            (Ok(()) | Err(TsigError::Unsigned), code) if code != 0 => Err(DnsError::Code(code)),
            (Err(error), _) => Err(error.into()),
            (Ok(()), code) => Err(DnsError::Code(code)),
        }
    }

    /// Returns the zone that a name belongs to.
    pub(super) async fn zone_of(&self, name: &str, is_recursive: bool) -> Result<Box<str>, DnsError> {
        let mut rest = Some(name);
        for _ in 0..ZONE_QUESTIONS_MAX {
            let Some(asked) = rest.filter(|asked| !asked.is_empty()) else { break };
            let response = self.ask(asked, ZoneRecordType::Soa, is_recursive).await?;
            // In the answer, or as the proof that the name has no record (RFC 2308 §3).
            let zones = response.records.iter().filter(|(_, record)| *record == ZoneRecord::Soa);
            let mut zones = zones.map(|(owner, _)| owner).filter(|owner| is_in_zone(name, owner));
            if let Some(zone) = zones.next() {
                return Ok(zone.clone());
            }
            rest = asked.split_once('.').map(|(_, parent)| parent);
        }
        Err(DnsError::NoZone(name.into()))
    }

    /// Returns the name servers of a zone, with their ports.
    pub(super) async fn name_servers(
        &self,
        zone: &str,
        is_recursive: bool,
    ) -> Result<Vec<Box<str>>, DnsError> {
        let response = self.ask(zone, ZoneRecordType::Ns, is_recursive).await?;
        let servers = response.records.into_iter().filter_map(|(owner, record)| match record {
            ZoneRecord::Ns(host) if *owner == *zone => Some(format!("{host}:53").into()),
            _ => None,
        });
        let servers: Vec<_> = servers.take(NAME_SERVERS_MAX).collect();
        match servers.is_empty() {
            true => Err(DnsError::NoNameServers(zone.into())),
            false => Ok(servers),
        }
    }

    /// Returns whether a name has a TXT record with a value.
    pub(super) async fn has_txt(&self, name: &str, value: &str) -> Result<bool, DnsError> {
        let response = self.ask(name, ZoneRecordType::Txt, false).await?;
        Ok(response.records.iter().any(|(owner, record)| {
            owner.eq_ignore_ascii_case(name) && *record == ZoneRecord::Txt(value.as_bytes().to_vec())
        }))
    }

    async fn ask(
        &self,
        name: &str,
        kind: ZoneRecordType,
        is_recursive: bool,
    ) -> Result<ZoneResponse, DnsError> {
        let id = fastrand::u16(..);
        let encode = if is_recursive { encode_recursive_question } else { encode_zone_question };
        let bytes = self.exchange(&encode(id, name, kind)?).await?;
        Ok(parse_response(&bytes, id)?)
    }

    async fn exchange(&self, message: &[u8]) -> Result<Vec<u8>, DnsError> {
        rt::tokio::select! {
            result = exchange(self.authority, message) => Ok(result?),
            () = self.timers.sleep_until((MonotonicTime::now() + REQUEST_NS).as_ns()) => Err(DnsError::Timeout),
        }
    }
}

fn is_in_zone(name: &str, zone: &str) -> bool {
    let parent = name.len().checked_sub(zone.len()).map(|at| name.split_at(at));
    parent.is_some_and(|(labels, end)| {
        end.eq_ignore_ascii_case(zone) && (labels.is_empty() || labels.ends_with('.')) && !zone.is_empty()
    })
}

/// Sends a message behind its length, and receives one (RFC 1035 §4.2.2).
async fn exchange(authority: &str, message: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = connect(authority).await?;
    let length = u16::try_from(message.len()).map_err(|_| io::Error::other("the request is too long"))?;
    stream.send(&[&length.to_be_bytes()[..], message].concat()).await?;
    let mut length = [0; 2];
    read_exact(&mut stream, &mut length).await?;
    let mut response = vec![0; usize::from(u16::from_be_bytes(length))];
    read_exact(&mut stream, &mut response).await?;
    Ok(response)
}

async fn connect(authority: &str) -> io::Result<Stream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in look_up(authority).await? {
        match rt::dial::connect(&Address::Tcp(address), None).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn read_exact(stream: &mut Stream, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match stream.read(buffer).await? {
            0 => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            read => buffer = &mut buffer[read..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

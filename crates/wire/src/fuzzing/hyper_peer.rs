//! Comparison with hyper's server on the same bytes: hyper accepts whatever we accept, with the
//! same method, target and content.
//!
//! The opposite is not checked: we reject more on purpose. The server runs over memory, with
//! neither a runtime nor a clock. The fuzz target `differential` includes this file, because hyper is no
//! dependency of this crate but of its tests.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Response, Uri};

/// Compares hyper's and our interpretation of a connection on which these bytes arrive.
///
/// # Panics
/// If we accept a request that hyper rejects, or interpret it differently.
pub(crate) fn check(bytes: &[u8]) {
    let ours = wire::fuzzing::accepted_requests(bytes);
    if ours.is_empty() {
        return;
    }
    let theirs = serve(bytes);
    for (at, request) in ours.iter().enumerate() {
        let Ok(uri) = request.target.parse::<Uri>() else {
            // hyper's type for a target is stricter than RFC 9112.
            return;
        };
        let Some(other) = theirs.get(at) else {
            panic!("request {at} is refused by hyper: {request:?}");
        };
        assert_eq!((&request.method, &uri), (&other.method, &other.uri), "request {at}");
        let is_http10 = request.version == wire::Version::Http10;
        assert_eq!(is_http10, other.version == hyper::Version::HTTP_10, "request {at}");
        if request.is_complete {
            assert_eq!(Some(&request.content), other.content.as_ref(), "request {at}");
        }
    }
}

/// Request that hyper passed to its service.
#[derive(Debug)]
struct ServedRequest {
    method: String,
    uri: Uri,
    version: hyper::Version,
    /// `None` if it was rejected or did not arrive.
    content: Option<Vec<u8>>,
}

fn serve(bytes: &[u8]) -> Vec<ServedRequest> {
    let served = Rc::new(RefCell::new(Vec::new()));
    let recorded = Rc::clone(&served);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let recorded = Rc::clone(&recorded);
        async move {
            let (head, body) = request.into_parts();
            // Recorded before the body arrives: if the body is cut off, this does not continue.
            let index = recorded.borrow().len();
            recorded.borrow_mut().push(ServedRequest {
                method: head.method.to_string(),
                uri: head.uri,
                version: head.version,
                content: None,
            });
            let content = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            recorded.borrow_mut()[index].content = content;
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(Script { rest: bytes.to_vec(), at: 0 }, service);
    run(connection);
    served.take()
}

/// Polls a future that never has to wait.
fn run(future: impl Future) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    // The future yields now and then out of fairness, but a script of this size ends long before
    // this.
    for _ in 0..1_000_000 {
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
    panic!("hyper waits for something");
}

/// Peer that has sent everything, has closed its side, and accepts any response.
struct Script {
    rest: Vec<u8>,
    at: usize,
}

impl Read for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let taken = buffer.remaining().min(self.rest.len() - self.at);
        buffer.put_slice(&self.rest[self.at..self.at + taken]);
        self.at += taken;
        Poll::Ready(Ok(()))
    }
}

impl Write for Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Checks that the comparison works: it sees each request and each content of a connection.
#[test]
fn pipelined_requests_are_served() {
    let bytes = b"POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n0\r\n\r\nGET /2 HTTP/1.0\r\n\r\n";
    let requests = serve(bytes);
    let received: Vec<_> = requests
        .iter()
        .map(|request| (request.method.as_str(), request.uri.path(), request.content.as_deref()))
        .collect();
    assert_eq!(received, [("POST", "/1", Some(&b"abc"[..])), ("GET", "/2", Some(b""))]);
    let ours = wire::fuzzing::accepted_requests(bytes);
    assert_eq!(ours.len(), 2);
    assert_eq!((ours[0].content.as_slice(), ours[0].is_complete), (&b"abc"[..], true));
}

//! A plan and outcomes for the tests of logs and metrics.

use std::num::NonZero;
use std::sync::Arc;

use rt::clock::MonotonicTime;

use crate::outcome::{EndPhase, EndReason, LoggedRequest, Outcome, RequestTrace, Times};
use crate::plan::{
    Action, Admission, Balance, ClientTimeouts, Conditions, Forwarding, HashKey, HashPlan, ListenerPlan,
    Mode, PathRule, Plan, PoolId, PoolLimits, PoolPlan, Priority, PrivilegesPlan, QueueOrder, QueuePlan,
    Reuse, RoutePlan, ServerHttp, ServerHttp2Plan, ServerId, ServerPlan, ServerTimeouts, Underscores,
};
use crate::test_time::at;
use crate::trace_context::{TraceContext, TraceId};

/// Returns a plan with listeners `web` and `raw` (TCP), and the given routes and pools. The servers
/// of a pool follow its colon: `app: a b`.
pub(crate) fn plan(routes: &[&str], pools: &[&str]) -> Plan {
    Plan {
        password_threads: crate::plan::PasswordThreads { threads: 1, queue_max: 1 },
        threads: 1,
        is_threads_set: true,
        pin: Vec::new(),
        connections_max: None,
        drain_timeout_ns: 0,
        privileges: PrivilegesPlan::default(),
        logs: Vec::new(),
        tracing: None,
        admin: None,
        admin_access: Default::default(),
        control: None,
        state_file: None,
        source: "".into(),
        included: Vec::new(),
        error_pages: Default::default(),
        maps: Arc::default(),
        caches: Arc::default(),
        listeners: Arc::new([listener("web", Mode::Http), listener("raw", Mode::Tcp(PoolId(0)))]),
        routes: routes.iter().map(|name| route(name)).collect(),
        pools: pools.iter().map(|pool| Arc::new(self::pool(pool))).collect(),
        given: Default::default(),
    }
}

fn listener(name: &str, mode: Mode) -> ListenerPlan {
    ListenerPlan {
        access: Default::default(),
        name: name.into(),
        bind: Vec::new(),
        unix_access: Default::default(),
        namespace: None,
        mode,
        tls: None,
        http2: None,
        sni: None,
        proxy_protocol: false,
        trusted: Vec::new(),
        is_unix_trusted: false,
        connections_max: None,
        handshakes_max: 1,
        requests_max: None,
        limits: wire::Limits::default(),
        body_bytes_max: None,
        timeouts: ClientTimeouts {
            head_ns: 0,
            body_ns: 0,
            body_idle_ns: 0,
            body_progress_ns: 0,
            body_progress_bytes: 0,
            write_ns: 0,
            write_progress_bytes: 0,
            keep_alive_ns: 0,
        },
        forwarding: Forwarding {
            x_forwarded: true,
            only_if_none: false,
            forwarded: false,
            via: None,
            request_id: None,
            underscores: Underscores::Drop,
        },
        path: PathRule::Normalise,
        connect: false,
        redirect_https: None,
        half_close: false,
        buffer_request_bytes: 0,
        compression: None,
        bandwidth: None,
        admission: Admission::default(),
    }
}

fn route(name: &str) -> RoutePlan {
    RoutePlan {
        name: name.into(),
        conditions: Conditions::default(),
        changes: Vec::new(),
        texts: None,
        path_rule: None,
        rate_limits: Vec::new(),
        priority: Priority::Normal,
        settings: Default::default(),
        action: Action::Forward(PoolId(0)),
    }
}

fn pool(text: &str) -> PoolPlan {
    let (name, servers) = text.split_once(": ").unwrap();
    let server = |name: &str| ServerPlan {
        name: name.into(),
        address: "127.0.0.1:1".parse().unwrap(),
        host: None,
        weight: 1,
        maxconn: None,
        backup: false,
    };
    PoolPlan {
        name: name.into(),
        servers: servers.split(' ').map(server).collect(),
        balance: Balance::RoundRobin,
        hash: HashPlan { key: HashKey::Source, load_factor: 1.25 },
        sticky: None,
        http: ServerHttp::Http11,
        http2: ServerHttp2Plan::default(),
        reuse: Reuse::Safe,
        idle_max: 0,
        idle_timeout_ns: 0,
        queue: QueuePlan { limit: 0, timeout_ns: 0, order: QueueOrder::Adaptive, standing_after_ns: 0 },
        overload_limits: PoolLimits::default(),
        timeouts: ServerTimeouts {
            connect_ns: 0,
            first_byte_ns: 0,
            idle_ns: 0,
            tunnel_ns: 0,
            abandoned_ns: 0,
        },
        limits: wire::Limits::default(),
        named_servers: Vec::new(),
        servers_file: None,
        resolve: crate::plan::ResolvePlan::default(),
        check: None,
        outlier: crate::plan::OutlierPlan::off(),
        slow_start_ns: 0,
        retries_max: 0,
        send_proxy_protocol: None,
        tls: None,
        namespace: None,
        sources: Vec::new(),
    }
}

pub(crate) const MS: u64 = 1_000_000;

/// Returns a successful request: 1 ms for the head, 2 in the queue, 3 to connect, 4 to the
/// response's head, 5 for the rest.
/// Trace of that request.
static TRACE: RequestTrace = RequestTrace {
    context: TraceContext {
        trace_id: TraceId::new(NonZero::new(0xabc).unwrap()),
        span_id: NonZero::new(7).unwrap(),
        parent_id: NonZero::new(9),
        is_sampled: true,
        replaces_fields: false,
    },
    attempts: Vec::new(),
};

pub(crate) fn successful_request() -> Outcome<'static> {
    let start = at(1_000 * MS);
    Outcome {
        client: Some([10, 0, 0, 7].into()),
        client_port: 41_000,
        listener: 0,
        route: Some(0),
        pool: Some(PoolId(0)),
        server: Some(ServerId(1)),
        request: Some(LoggedRequest {
            method: b"GET",
            target: b"/a?b=1&token=xyz",
            protocol: crate::outcome::Protocol::Http11,
            host: b"example.org",
            referer: b"http://u:p@a.example/?key=1",
            user_agent: b"curl/8.5.0",
            request_id: b"0192f0c1d2e3",
            captured: b"",
        }),
        status: 200,
        end: EndReason::Done,
        phase: EndPhase::Over,
        refusal: None,
        times: Times {
            start,
            head: start + MS,
            dispatched: start + 3 * MS,
            connected: start + 6 * MS,
            first_byte: start + 10 * MS,
            end: start + 15 * MS,
        },
        bytes_in: 90,
        bytes_out: 350,
        content_bytes_out: 100,
        retries: 1,
        reused: false,
        wasted: false,
        sticky: None,
        hedge: None,
        cache: None,
        tls_names: None,
        server_name: None,
        user: "",
        tls_error: None,
        trace: Some(&TRACE),
    }
}

/// Returns a request whose head could not be parsed.
pub(crate) fn malformed_request() -> Outcome<'static> {
    let start = at(1_000 * MS);
    Outcome {
        route: None,
        pool: None,
        server: None,
        request: None,
        status: 400,
        end: EndReason::BadRequest,
        phase: EndPhase::Request,
        refusal: Some(wire::RefusalKind::BareLf),
        times: Times { start, end: start + 2 * MS, ..Times::default() },
        content_bytes_out: 0,
        retries: 0,
        ..successful_request()
    }
}

pub(crate) fn tcp_connection() -> Outcome<'static> {
    let start = at(1_000 * MS);
    Outcome {
        listener: 1,
        route: None,
        request: None,
        status: 0,
        times: Times {
            head: MonotonicTime::ZERO,
            first_byte: MonotonicTime::ZERO,
            end: start + 7_000 * MS,
            ..successful_request().times
        },
        retries: 0,
        ..successful_request()
    }
}

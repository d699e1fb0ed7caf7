//! Configs of weir, HAProxy and nginx with the limits of a plan. Addresses are of the networks for
//! documentation: they have to be replaced.

use std::fmt::Write as _;

use record::invalid_value;
use record::problem::InvalidValue;

use crate::backend::Backend;
use crate::sizing::Sizing;
use crate::verification::VerifiedPlan;

/// Address of the listener of a printed config.
const LISTEN: &str = "127.0.0.1:8080";

/// Program whose config is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigTarget {
    Weir,
    Haproxy,
    Nginx,
}

/// Addresses in a config: the servers of a backend, by their numbers from 0.
pub type AddressOf<'a> = &'a dyn Fn(usize, u64) -> String;

impl ConfigTarget {
    pub const NAMES: [&'static str; 3] = ["weir", "haproxy", "nginx"];

    /// Parses the name of a target.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "weir" => Ok(Self::Weir),
            "haproxy" => Ok(Self::Haproxy),
            "nginx" => Ok(Self::Nginx),
            _ => Err(invalid_value!("'{text}' is not one of {}", Self::NAMES.join(", "))),
        }
    }
}

/// Returns an address for documentation (RFC 5737 and 2544), as a server of backend `backend`.
pub fn documentation_address(backend: usize, server: u64) -> String {
    let number = server + 1;
    format!(
        "198.{}.{}.{}:8000",
        18 + (backend / 128) % 2,
        (backend * 2 + (number / 250) as usize) % 256,
        number % 250
    )
}

struct PoolLimits {
    backend: Backend,
    queue_limit: u64,
    queue_ms: u64,
}

fn pools(sizing: &Sizing) -> Vec<PoolLimits> {
    let total: u64 = sizing.backends.iter().filter_map(Backend::slots).sum();
    let limit = sizing.value("queue-limit").unwrap_or(1024.0);
    let queue_ms = (sizing.value("queue-timeout").unwrap_or(0.1) * 1e3).round().max(1.0) as u64;
    let pools = sizing.backends.iter().map(|backend| {
        let fraction = backend.slots().unwrap_or(0) as f64 / total.max(1) as f64;
        let queue_limit = (limit * fraction).ceil().clamp(1.0, 1e6) as u64;
        PoolLimits { backend: backend.clone(), queue_limit, queue_ms }
    });
    pools.collect()
}

/// Writes the config. Several backends are routed by the first segment of the path, which has to be
/// replaced.
pub fn write(sizing: &Sizing, target: ConfigTarget, address_of: AddressOf<'_>) -> String {
    let global = sizing.value("maxconn-global").unwrap_or(1024.0).ceil() as u64
        + sizing.value("idle-connections").unwrap_or(0.0).ceil() as u64;
    write_pools(&pools(sizing), target, (global, LISTEN), address_of)
}

/// Writes the config of a plan that is verified: one backend, with a listener at `listen` and the servers at
/// these addresses. `connections` is the maximum number of client connections.
pub fn write_verified(
    plan: &VerifiedPlan,
    target: ConfigTarget,
    (connections, listen): (u64, &str),
    servers: &[String],
) -> String {
    let backend = Backend {
        name: "app".to_owned(),
        servers: servers.len() as u64,
        maxconn: Some(plan.maxconn),
        rate_per_s: None,
        service_s: None,
    };
    let queue_ms = plan.queue_ms();
    let pools = [PoolLimits { backend, queue_limit: plan.queue_limit, queue_ms }];
    let address_of = |_: usize, server: u64| servers.get(server as usize).cloned().unwrap_or_default();
    write_pools(&pools, target, (connections, listen), &address_of)
}

fn write_pools(
    pools: &[PoolLimits],
    target: ConfigTarget,
    (global, listen): (u64, &str),
    address_of: AddressOf<'_>,
) -> String {
    match target {
        ConfigTarget::Weir => weir(pools, (global, listen), address_of),
        ConfigTarget::Haproxy => haproxy(pools, (global, listen), address_of),
        ConfigTarget::Nginx => nginx(pools, (global, listen), address_of),
    }
}

fn weir(pools: &[PoolLimits], (global, listen): (u64, &str), address_of: AddressOf<'_>) -> String {
    let mut text = format!("connections-max = {global}\n\n[listener.web]\nbind = \"{listen}\"\n");
    for pool in pools {
        let prefix = match pools.len() {
            1 => String::new(),
            _ => format!("path-prefix = \"/{}\"\n", pool.backend.name),
        };
        let _ = write!(text, "\n[[route]]\n{prefix}pool = \"{}\"\n", pool.backend.name);
    }
    for (index, pool) in pools.iter().enumerate() {
        let limit = pool.backend.maxconn.map_or_else(String::new, |maxconn| format!(", maxconn = {maxconn}"));
        let _ = write!(
            text,
            "\n[pool.{}]\nqueue = {{ limit = {}, timeout = \"{}ms\" }}\nservers = [\n",
            pool.backend.name, pool.queue_limit, pool.queue_ms
        );
        for server in 0..pool.backend.servers {
            let _ = writeln!(text, "    {{ address = \"{}\"{limit} }},", address_of(index, server));
        }
        text.push_str("]\n");
    }
    text
}

fn haproxy(pools: &[PoolLimits], (global, listen): (u64, &str), address_of: AddressOf<'_>) -> String {
    let mut text = format!(
        "global\n    maxconn {global}\n\ndefaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    \
         timeout server 60s\n\nfrontend web\n    bind {listen}\n    maxconn {global}\n"
    );
    for pool in pools.iter().take(pools.len().saturating_sub(1)) {
        let name = &pool.backend.name;
        let _ = writeln!(text, "    use_backend {name} if {{ path_beg /{name}/ }}");
    }
    if let Some(last) = pools.last() {
        let _ = writeln!(text, "    default_backend {}", last.backend.name);
    }
    for (index, pool) in pools.iter().enumerate() {
        let name = &pool.backend.name;
        // HAProxy bounds the queue of a backend only by time, and by a rule on its length.
        let _ = write!(
            text,
            "\nbackend {name}\n    balance leastconn\n    timeout queue {}ms\n    http-request deny deny_status 503 if \
             {{ queue({name}) ge {} }}\n",
            pool.queue_ms, pool.queue_limit
        );
        let limit = pool.backend.maxconn.map_or_else(String::new, |maxconn| format!(" maxconn {maxconn}"));
        for server in 0..pool.backend.servers {
            let _ = writeln!(text, "    server s{} {}{limit}", server + 1, address_of(index, server));
        }
    }
    text
}

fn nginx(pools: &[PoolLimits], (global, listen): (u64, &str), address_of: AddressOf<'_>) -> String {
    let slots: u64 = pools.iter().filter_map(|pool| pool.backend.slots()).sum();
    // nginx has no queue: requests above max_conns get an error at once. Each worker has its own
    // counts without a zone.
    let mut text = format!("events {{\n    worker_connections {};\n}}\n\nhttp {{\n", global + slots + 64);
    for (index, pool) in pools.iter().enumerate() {
        let limit = pool.backend.maxconn.map_or_else(String::new, |maxconn| format!(" max_conns={maxconn}"));
        let kept = pool.backend.slots().unwrap_or(64);
        let _ = writeln!(
            text,
            "    upstream {} {{\n        zone {0} 1m;\n        least_conn;",
            pool.backend.name
        );
        for server in 0..pool.backend.servers {
            let _ = writeln!(text, "        server {}{limit};", address_of(index, server));
        }
        let _ = writeln!(text, "        keepalive {kept};\n    }}");
    }
    let _ = writeln!(text, "    server {{\n        listen {listen};");
    for pool in pools {
        let path = if pools.len() == 1 { "/".to_owned() } else { format!("/{}/", pool.backend.name) };
        let _ = writeln!(
            text,
            "        location {path} {{\n            proxy_pass http://{};\n            proxy_http_version 1.1;\n            \
             proxy_set_header Connection \"\";\n        }}",
            pool.backend.name
        );
    }
    text.push_str("    }\n}\n");
    text
}

//! Proving ground: servers as other people write and configure them, each with its right verdict. A
//! case's file names the measurement, other than weir's, that proves the verdict.
//!
//! The analyser's results on the held-out part may be counted, but not read.

use super::cases::{CaseKind, Requirement, TestCase};

macro_rules! case {
    ($kind:ident, $verdict:literal, [$($accepts:literal),*], $name:literal, [$($need:expr),*]) => {
        TestCase {
            verdict: $verdict,
            also_right: &[$($accepts),*],
            name: $name,
            kind: CaseKind::$kind,
            requirements: &[$($need),*],
            file: include_str!(concat!("foreign/", $name, ".toml")),
        }
    };
}

/// Files of packages that have no program of their own, as Debian installs them.
const BOOST_BEAST: &str = "/usr/include/boost/beast.hpp";
const CPP_HTTPLIB: &str = "/usr/include/httplib.h";
const EVHTTP: &str = "/usr/include/event2/http.h";
const GEVENT: &str = "/usr/lib/python3/dist-packages/gevent/__init__.py";
const HTTPUV: &str = "/usr/lib/R/site-library/httpuv/DESCRIPTION";
const HUNCHENTOOT: &str = "/usr/share/common-lisp/systems/hunchentoot.asd";
const LUA_HTTP: &str = "/usr/share/lua/5.2/http/server.lua";
const MICROHTTPD: &str = "/usr/include/microhttpd.h";
const MOJOLICIOUS: &str = "/usr/share/perl5/Mojolicious.pm";
const POSTGRES: &str = "/usr/lib/postgresql/15/bin/postgres";
const SINATRA: &str = "/usr/share/rubygems-integration/all/gems/sinatra-3.0.5/lib/sinatra.rb";
const WARP: &str = "/var/lib/ghc/package.conf.d/warp-3.3.21.conf";
const AIOHTTP: &str = "/usr/lib/python3/dist-packages/aiohttp/web.py";
const MOD_PHP: &str = "/usr/lib/apache2/modules/libphp8.2.so";
const NGINX_LUA: &str = "/usr/lib/nginx/modules/ngx_http_lua_module.so";
const TOMCAT: &str = "/usr/share/java/tomcat10-embed-core.jar";
const TORNADO: &str = "/usr/lib/python3/dist-packages/tornado/web.py";

/// All cases of the proving ground.
pub const FOREIGN: &[TestCase] = &[
    case!(Healthy, "none", [], "go_open", [Requirement::Program("go")]),
    case!(Healthy, "none", [], "node_open", [Requirement::Program("node")]),
    case!(Healthy, "none", [], "uvicorn_open", [Requirement::Program("uvicorn")]),
    case!(Healthy, "none", [], "java_open", [Requirement::Program("javac")]),
    case!(Healthy, "none", [], "nginx_static_open", [Requirement::Program("nginx")]),
    case!(
        Healthy,
        "none",
        [],
        "nginx_go_proxy_open",
        [Requirement::Program("nginx"), Requirement::Program("go")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "haproxy_two_nodes_open",
        [Requirement::Program("haproxy"), Requirement::Program("node")]
    ),
    case!(Healthy, "none", [], "node_cluster_poisson", [Requirement::Program("node"), Requirement::Cpus(2)]),
    case!(Healthy, "none", [], "go_think_time", [Requirement::Program("go")]),
    case!(Healthy, "none", [], "go_connection_per_request_open", [Requirement::Program("go")]),
    case!(
        Decoy,
        "none",
        [],
        "slow_app_stranger_open",
        [Requirement::Program("go"), Requirement::Program("python3")]
    ),
    case!(Decoy, "none", [], "node_small_loss_open", [Requirement::Program("node")]),
    case!(Decoy, "none", [], "nginx_large_bodies_open", [Requirement::Program("nginx")]),
    case!(Decoy, "none", [], "go_quota_unused_open", [Requirement::Program("go")]),
    case!(
        Decoy,
        "none",
        [],
        "haproxy_maxconn_unused_open",
        [Requirement::Program("haproxy"), Requirement::Program("go")]
    ),
    case!(
        Single,
        "latency_bound",
        [],
        "haproxy_four_slow_origins",
        [Requirement::Program("haproxy"), Requirement::Program("go")]
    ),
    case!(Single, "latency_bound", [], "uvicorn_async_sleep", [Requirement::Program("uvicorn")]),
    case!(Single, "latency_bound", [], "node_timer", [Requirement::Program("node")]),
    case!(Single, "latency_bound", [], "nginx_far_link", [Requirement::Program("nginx")]),
    case!(Decoy, "latency_bound", [], "go_idle_connections", [Requirement::Program("go")]),
    case!(
        Decoy,
        "latency_bound",
        [],
        "slow_app_stranger_closed",
        [Requirement::Program("go"), Requirement::Program("python3")]
    ),
    case!(Decoy, "latency_bound", [], "java_many_sleepers", [Requirement::Program("javac")]),
    case!(Decoy, "latency_bound", [], "nginx_limit_rate", [Requirement::Program("nginx")]),
    case!(Decoy, "latency_bound", [], "go_delay_misses_objective", [Requirement::Program("go")]),
    case!(Single, "subject_limited", [], "go_semaphore", [Requirement::Program("go")]),
    case!(Single, "subject_limited", ["connection_limited"], "go_pool_of_four", [Requirement::Program("go")]),
    case!(Single, "subject_limited", [], "java_four_threads", [Requirement::Program("javac")]),
    case!(Single, "subject_limited", [], "nginx_limit_req", [Requirement::Program("nginx")]),
    case!(Decoy, "subject_limited", [], "go_mutex_sleep", [Requirement::Program("go")]),
    case!(Decoy, "subject_limited", [], "uvicorn_sync_sleep", [Requirement::Program("uvicorn")]),
    case!(Decoy, "subject_limited", [], "python_serial_sleep", [Requirement::Program("python3")]),
    case!(
        Single,
        "single_thread_bound",
        [],
        "node_cpu",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "single_thread_bound",
        [],
        "uvicorn_cpu",
        [Requirement::Program("uvicorn"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "single_thread_bound",
        ["lock_contention"],
        "python_gil",
        [Requirement::Program("python3"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "single_thread_bound",
        ["user_cpu_bound"],
        "nginx_gzip",
        [Requirement::Program("nginx"), Requirement::Cpus(2)]
    ),
    case!(Single, "user_cpu_bound", [], "go_both_cpus", [Requirement::Program("go"), Requirement::Cpus(2)]),
    case!(
        Single,
        "user_cpu_bound",
        [],
        "node_cluster_both_cpus",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "kernel_cpu_bound",
        [],
        "go_kernel_reads",
        [Requirement::Program("go"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "kernel_cpu_bound",
        [],
        "nginx_connection_per_request",
        [Requirement::Program("nginx"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "node_full_think_time",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "node_full_small_loss",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        ["user_cpu_bound"],
        "node_gc",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "python_full_misses_objective",
        [Requirement::Program("uvicorn"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "lock_contention",
        ["single_thread_bound"],
        "go_mutex_compute",
        [Requirement::Program("go"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "nginx_busy_python",
        [Requirement::Program("nginx"), Requirement::Program("python3"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "nginx_busy_python_unix",
        [Requirement::Program("nginx"), Requirement::Program("uvicorn"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "go_proxy_busy_node",
        [Requirement::Program("go"), Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "haproxy_uneven_origins",
        [
            Requirement::Program("haproxy"),
            Requirement::Program("go"),
            Requirement::Program("python3"),
            Requirement::Cpus(2)
        ]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "haproxy_maxconn_busy_origin",
        [Requirement::Program("haproxy"), Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "nginx_node_semaphore_origin",
        [Requirement::Program("nginx"), Requirement::Program("node")]
    ),
    case!(
        Single,
        "connection_limited",
        [],
        "haproxy_maxconn_two_origins",
        [Requirement::Program("haproxy"), Requirement::Program("go")]
    ),
    case!(
        Single,
        "connection_limited",
        [],
        "haproxy_maxconn_unix",
        [Requirement::Program("haproxy"), Requirement::Program("go")]
    ),
    case!(
        Single,
        "port_exhaustion",
        [],
        "nginx_out_of_ports",
        [Requirement::Program("nginx"), Requirement::Program("go")]
    ),
    case!(
        Single,
        "port_exhaustion",
        [],
        "haproxy_out_of_ports",
        [Requirement::Program("haproxy"), Requirement::Program("go")]
    ),
    case!(Single, "cpu_throttled", [], "node_cluster_worker_quota", [Requirement::Program("node")]),
    case!(Single, "cpu_throttled", [], "go_quota", [Requirement::Program("go")]),
    case!(Single, "link_bound", [], "nginx_large_shaped", [Requirement::Program("nginx")]),
    case!(
        Single,
        "link_bound",
        [],
        "loopback_shaped",
        [Requirement::Program("nginx"), Requirement::Program("go")]
    ),
    case!(Single, "receive_window_bound", [], "nginx_slow_readers", [Requirement::Program("nginx")]),
    case!(Single, "packet_loss", [], "go_loss", [Requirement::Program("go")]),
    case!(Single, "fd_limit", [], "go_fd_limit", [Requirement::Program("go")]),
    case!(Single, "delayed_ack_stall", [], "python_nagle", [Requirement::Program("python3")]),
    case!(
        Single,
        "accept_backlog_overflow",
        ["subject_limited"],
        "python_accept_backlog",
        [Requirement::Program("python3")]
    ),
    case!(Single, "memory_pressure", [], "python_page_cache", [Requirement::Program("python3")]),
    case!(Single, "log_write_bound", [], "go_log_dsync", [Requirement::Program("go")]),
    case!(
        TwoCauses,
        "accept_backlog_overflow",
        ["single_thread_bound"],
        "two_backlog_and_thread",
        [Requirement::Program("python3"), Requirement::Cpus(2)]
    ),
    case!(
        TwoCauses,
        "port_exhaustion",
        ["origin_bound"],
        "two_ports_and_busy_origin",
        [Requirement::Program("haproxy"), Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        TwoCauses,
        "fd_limit",
        ["single_thread_bound"],
        "two_descriptors_and_thread",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(TwoCauses, "packet_loss", ["link_bound"], "two_loss_and_link", [Requirement::Program("nginx")]),
    case!(Healthy, "none", [], "apache_event_open", [Requirement::Program("apache2")]),
    case!(Healthy, "none", [], "lighttpd_poisson_open", [Requirement::Program("lighttpd")]),
    case!(
        Healthy,
        "none",
        [],
        "caddy_proxy_think_time",
        [Requirement::Program("caddy"), Requirement::Program("go")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "varnish_hits_open",
        [Requirement::Program("varnishd"), Requirement::Program("python3")]
    ),
    case!(Healthy, "none", [], "java_garbage_open", [Requirement::Program("javac")]),
    case!(Healthy, "none", [], "gunicorn_threads_open", [Requirement::Program("gunicorn")]),
    case!(
        Healthy,
        "none",
        [],
        "nginx_php_fpm_open",
        [Requirement::Program("nginx"), Requirement::Program("php-fpm8.2")]
    ),
    case!(Healthy, "none", [], "puma_open", [Requirement::Program("puma")]),
    case!(Decoy, "none", [], "asyncio_log_of_errors_open", [Requirement::Program("python3")]),
    case!(
        Decoy,
        "none",
        [],
        "node_workers_busy_stranger_open",
        [Requirement::Program("node"), Requirement::Program("python3"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "none",
        [],
        "apache_idle_connections_open",
        [Requirement::Program("apache2"), Requirement::Program("python3")]
    ),
    case!(
        Decoy,
        "user_cpu_bound",
        [],
        "node_thread_pool_computes",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "go_one_processor_of_two",
        [Requirement::Program("go"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "nginx_php_fpm_four_children",
        [Requirement::Program("nginx"), Requirement::Program("php-fpm8.2")]
    ),
    case!(
        Decoy,
        "origin_bound",
        ["cpu_throttled"],
        "haproxy_origin_quota",
        [Requirement::Program("haproxy"), Requirement::Program("go")]
    ),
    case!(Decoy, "subject_limited", [], "node_token_bucket", [Requirement::Program("node")]),
    case!(
        Single,
        "kernel_cpu_bound",
        [],
        "python_urandom_processes",
        [Requirement::Program("python3"), Requirement::Cpus(2)]
    ),
    case!(Single, "subject_limited", [], "gunicorn_four_sync_workers", [Requirement::Program("gunicorn")]),
    case!(
        Single,
        "origin_bound",
        [],
        "varnish_pass_busy_perl",
        [Requirement::Program("varnishd"), Requirement::Program("starman"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "connection_limited",
        [],
        "caddy_max_conns",
        [Requirement::Program("caddy"), Requirement::Program("go")]
    ),
    case!(Single, "latency_bound", [], "node_stream_of_chunks", [Requirement::Program("node")]),
    case!(Single, "link_bound", [], "java_uploads_narrow_link", [Requirement::Program("javac")]),
    case!(
        Single,
        "cpu_steal",
        [],
        "php_busy_neighbours",
        [Requirement::Program("php"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "accept_backlog_overflow",
        [],
        "node_backlog_during_pauses",
        [Requirement::Program("node")]
    ),
    case!(Single, "fd_limit", [], "asyncio_fd_limit", [Requirement::Program("python3")]),
    case!(
        Single,
        "port_exhaustion",
        [],
        "node_out_of_ports",
        [Requirement::Program("node"), Requirement::Program("go")]
    ),
    case!(
        Single,
        "log_write_bound",
        [],
        "apache_piped_log",
        [Requirement::Program("apache2"), Requirement::Program("python3")]
    ),
    case!(
        Single,
        "lock_contention",
        ["single_thread_bound"],
        "java_synchronized",
        [Requirement::Program("javac"), Requirement::Cpus(2)]
    ),
    case!(Single, "packet_loss", [], "puma_uploads_lost", [Requirement::Program("puma")]),
    case!(Single, "receive_window_bound", [], "node_uploads_small_window", [Requirement::Program("node")]),
    case!(Single, "delayed_ack_stall", [], "java_nagle", [Requirement::Program("javac")]),
    case!(
        TwoCauses,
        "accept_backlog_overflow",
        ["cpu_throttled"],
        "two_backlog_and_quota",
        [Requirement::Program("ruby")]
    ),
    case!(
        TwoCauses,
        "fd_limit",
        ["subject_limited"],
        "two_descriptors_and_semaphore",
        [Requirement::Program("python3")]
    ),
    case!(
        TwoCauses,
        "receive_window_bound",
        ["packet_loss"],
        "two_window_and_loss",
        [Requirement::Program("lighttpd")]
    ),
    case!(TwoCauses, "link_bound", ["cpu_throttled"], "two_link_and_quota", [Requirement::Program("go")]),
    case!(
        Healthy,
        "none",
        [],
        "tornado_poisson_open",
        [Requirement::Program("python3"), Requirement::File(TORNADO)]
    ),
    case!(
        Healthy,
        "none",
        [],
        "squid_hits_open",
        [Requirement::Program("squid"), Requirement::Program("twistd3")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "tomcat_think_time",
        [Requirement::Program("javac"), Requirement::File(TOMCAT)]
    ),
    case!(Decoy, "none", [], "h2o_far_files_open", [Requirement::Program("h2o")]),
    case!(
        Decoy,
        "none",
        [],
        "mod_php_time_wait_open",
        [Requirement::Program("apache2"), Requirement::File(MOD_PHP), Requirement::Program("twistd3")]
    ),
    case!(Decoy, "subject_limited", [], "erlang_gen_server", [Requirement::Program("erlc")]),
    case!(Single, "delayed_ack_stall", [], "erlang_inets_nagle", [Requirement::Program("erlc")]),
    case!(
        Single,
        "user_cpu_bound",
        [],
        "nginx_lua_both_workers",
        [Requirement::Program("nginx"), Requirement::File(NGINX_LUA), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "port_exhaustion",
        [],
        "tinyproxy_out_of_ports",
        [Requirement::Program("tinyproxy"), Requirement::Program("python3"), Requirement::File(AIOHTTP)]
    ),
    case!(
        Single,
        "cpu_throttled",
        [],
        "trafficserver_quota",
        [Requirement::Program("traffic_server"), Requirement::Program("python3"), Requirement::File(TORNADO)]
    ),
    case!(
        Single,
        "subject_limited",
        [],
        "squid_rewrite_helpers",
        [Requirement::Program("squid"), Requirement::Program("python3"), Requirement::Program("h2o")]
    ),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "twisted_connection_per_request",
        [Requirement::Program("twistd3"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "h2o_tomcat_four_threads",
        [Requirement::Program("h2o"), Requirement::Program("javac"), Requirement::File(TOMCAT)]
    ),
    case!(
        Decoy,
        "latency_bound",
        [],
        "aiohttp_gateway_latency",
        [Requirement::Program("python3"), Requirement::File(AIOHTTP)]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "mod_php_busy_api",
        [
            Requirement::Program("apache2"),
            Requirement::File(MOD_PHP),
            Requirement::Program("python3"),
            Requirement::File(TORNADO),
            Requirement::Cpus(2)
        ]
    ),
    case!(Healthy, "none", [], "caddy_gzip_files_open", [Requirement::Program("caddy")]),
    case!(
        Healthy,
        "none",
        [],
        "haproxy_starman_poisson",
        [Requirement::Program("haproxy"), Requirement::Program("starman")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "nginx_microcache_gunicorn_open",
        [Requirement::Program("nginx"), Requirement::Program("gunicorn")]
    ),
    case!(Healthy, "none", [], "java_pollers_open", [Requirement::Program("javac")]),
    case!(Healthy, "none", [], "starman_think_time", [Requirement::Program("starman")]),
    case!(
        Healthy,
        "none",
        [],
        "nginx_chatty_neighbour_open",
        [Requirement::Program("nginx"), Requirement::Program("node")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "flask_sleeps_open",
        [Requirement::Program("python3"), Requirement::Program("flask")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "apache_php_fpm_think_time",
        [Requirement::Program("apache2"), Requirement::Program("php-fpm8.2")]
    ),
    case!(
        Single,
        "single_thread_bound",
        ["lock_contention"],
        "puma_gvl_computes",
        [Requirement::Program("puma"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "user_cpu_bound",
        [],
        "starman_workers_compute",
        [Requirement::Program("starman"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "kernel_cpu_bound",
        [],
        "gunicorn_reads_proc",
        [Requirement::Program("gunicorn"), Requirement::Cpus(2)]
    ),
    case!(Single, "subject_limited", [], "java_blocking_queue_pool", [Requirement::Program("javac")]),
    case!(Single, "subject_limited", [], "apache_prefork_seven_workers", [Requirement::Program("apache2")]),
    case!(
        Single,
        "origin_bound",
        [],
        "apache_proxy_busy_puma",
        [Requirement::Program("apache2"), Requirement::Program("puma"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "lighttpd_gunicorn_thread_pool",
        [Requirement::Program("lighttpd"), Requirement::Program("gunicorn")]
    ),
    case!(
        Single,
        "connection_limited",
        [],
        "apache_proxy_pool_max",
        [Requirement::Program("apache2"), Requirement::Program("go")]
    ),
    case!(
        Single,
        "latency_bound",
        [],
        "varnish_far_origin",
        [Requirement::Program("varnishd"), Requirement::Program("go")]
    ),
    case!(
        Single,
        "log_write_bound",
        ["lock_contention"],
        "java_journal_force",
        [Requirement::Program("javac")]
    ),
    case!(Single, "receive_window_bound", [], "java_slow_readers", [Requirement::Program("javac")]),
    case!(
        Single,
        "fd_limit",
        [],
        "nginx_proxy_fd_limit",
        [Requirement::Program("nginx"), Requirement::Program("go")]
    ),
    case!(
        Single,
        "cpu_steal",
        [],
        "uvicorn_batch_neighbour",
        [Requirement::Program("uvicorn"), Requirement::Program("python3"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "connection_limited",
        [],
        "haproxy_maxconn_far_origin",
        [Requirement::Program("haproxy"), Requirement::Program("go")]
    ),
    case!(Decoy, "cpu_throttled", [], "java_quota_full_pool", [Requirement::Program("javac")]),
    case!(
        Decoy,
        "single_thread_bound",
        [],
        "node_json_large_bodies",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "subject_limited",
        ["connection_limited"],
        "varnish_uncacheable_serial",
        [Requirement::Program("varnishd"), Requirement::Program("go")]
    ),
    case!(
        Decoy,
        "none",
        [],
        "nginx_time_wait_open",
        [Requirement::Program("nginx"), Requirement::Program("go")]
    ),
    case!(Decoy, "subject_limited", [], "php_session_lock", [Requirement::Program("php")]),
    case!(
        Decoy,
        "user_cpu_bound",
        [],
        "java_gc_thrash",
        [Requirement::Program("javac"), Requirement::Cpus(2)]
    ),
    case!(
        TwoCauses,
        "fd_limit",
        ["cpu_throttled"],
        "two_descriptors_and_throttle",
        [Requirement::Program("node")]
    ),
    case!(
        TwoCauses,
        "accept_backlog_overflow",
        ["subject_limited"],
        "two_backlog_and_workers",
        [Requirement::Program("starman")]
    ),
    case!(
        TwoCauses,
        "link_bound",
        ["single_thread_bound"],
        "two_link_and_thread",
        [Requirement::Program("node"), Requirement::Cpus(2)]
    ),
    case!(
        TwoCauses,
        "delayed_ack_stall",
        ["packet_loss"],
        "two_nagle_and_loss",
        [Requirement::Program("ruby")]
    ),
    case!(Healthy, "none", [], "warp_poisson_open", [Requirement::File(WARP), Requirement::Program("ghc")]),
    case!(
        Healthy,
        "none",
        [],
        "nginx_uwsgi_think_time",
        [Requirement::Program("nginx"), Requirement::Program("uwsgi")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "gevent_memcached_open",
        [Requirement::File(GEVENT), Requirement::Program("memcached")]
    ),
    case!(
        Healthy,
        "none",
        [],
        "sinatra_thin_open",
        [Requirement::File(SINATRA), Requirement::Program("thin")]
    ),
    case!(
        Single,
        "lock_contention",
        ["single_thread_bound"],
        "microhttpd_mutex_table",
        [Requirement::File(MICROHTTPD), Requirement::Program("gcc"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "user_cpu_bound",
        [],
        "hunchentoot_both_cpus",
        [Requirement::File(HUNCHENTOOT), Requirement::Program("sbcl"), Requirement::Cpus(2)]
    ),
    case!(
        Single,
        "origin_bound",
        [],
        "go_redis_lua_script",
        [Requirement::Program("go"), Requirement::Program("redis-server"), Requirement::Cpus(2)]
    ),
    case!(
        Decoy,
        "subject_limited",
        [],
        "httplib_six_threads",
        [Requirement::File(CPP_HTTPLIB), Requirement::Program("g++")]
    ),
    case!(
        Single,
        "subject_limited",
        ["connection_limited"],
        "go_postgres_pool_of_two",
        [Requirement::Program("go"), Requirement::File(POSTGRES)]
    ),
    case!(
        Decoy,
        "none",
        [],
        "evhttp_journal_thread_open",
        [Requirement::File(EVHTTP), Requirement::Program("gcc")]
    ),
    case!(
        Decoy,
        "subject_limited",
        ["connection_limited"],
        "mojolicious_blocking_client",
        [
            Requirement::File(LUA_HTTP),
            Requirement::File(MOJOLICIOUS),
            Requirement::Program("perl"),
            Requirement::Program("lua5.2")
        ]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "haproxy_waitress_four_threads",
        [Requirement::Program("haproxy"), Requirement::Program("waitress-serve")]
    ),
    case!(
        Decoy,
        "origin_bound",
        [],
        "go_postgres_row_lock",
        [Requirement::Program("go"), Requirement::File(POSTGRES)]
    ),
    case!(
        TwoCauses,
        "link_bound",
        ["subject_limited"],
        "two_link_and_licences",
        [Requirement::File(BOOST_BEAST), Requirement::Program("g++")]
    ),
    case!(
        Decoy,
        "delayed_ack_stall",
        [],
        "httpuv_two_writes",
        [Requirement::File(HTTPUV), Requirement::Program("Rscript")]
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::cases::CASES;
    use super::super::cases::tests::CODES;
    use super::super::split::{CasePart, SPLIT_SEED, experiment_text};
    use super::*;

    #[test]
    fn every_case_is_an_experiment_with_known_verdicts_and_a_unique_name() {
        assert!(FOREIGN.len() >= 100, "{}", FOREIGN.len());
        for (at, case) in FOREIGN.iter().enumerate() {
            for verdict in std::iter::once(&case.verdict).chain(case.also_right) {
                assert!(CODES.contains(verdict), "{}: {verdict}", case.name);
            }
            let before = FOREIGN[..at].iter().chain(CASES);
            assert!(before.into_iter().all(|other| other.name != case.name), "{}", case.name);
            let experiment = case.experiment().unwrap_or_else(|problems| panic!("{problems:?}"));
            assert!(!experiment.title.is_empty(), "{}", case.name);
            assert_eq!(case.kind == CaseKind::Healthy, case.verdict == "none" && !is_decoy(case));
            if case.kind == CaseKind::TwoCauses {
                assert_eq!(case.also_right.len(), 1, "{}", case.name);
            } else if !case.also_right.is_empty() {
                let comment = experiment_text(case.file).lines().nth(1).unwrap_or_default();
                assert!(comment.starts_with("# "), "{}: say why two verdicts are right", case.name);
            }
            assert!(!experiment.scenario.global_settings().iter().any(|_| true), "{}", case.name);
        }
    }

    #[test]
    fn examined_cases_are_in_the_development_part() {
        for name in ["go_kernel_reads", "go_log_dsync", "loopback_shaped", "nginx_out_of_ports"] {
            let case = FOREIGN.iter().find(|case| case.name == name).unwrap();
            assert_eq!(CasePart::assigned(SPLIT_SEED, name), CasePart::HeldOut, "{name}");
            assert_eq!(case.part(), Some(CasePart::Development), "{name}");
        }
    }

    fn is_decoy(case: &TestCase) -> bool {
        case.kind == CaseKind::Decoy
    }

    /// Checks the parts by kind. The seed assigns at least a third of each kind to each part, so
    /// that both parts can distinguish the kinds. Each kind still has held-out cases without the
    /// examined ones.
    #[test]
    fn both_parts_have_cases_of_every_kind() {
        let mut counts: BTreeMap<CaseKind, (usize, usize, usize)> = BTreeMap::new();
        for case in FOREIGN {
            let (all, held_out, still_held_out) = counts.entry(case.kind).or_default();
            *all += 1;
            *held_out += usize::from(CasePart::assigned(SPLIT_SEED, case.name) == CasePart::HeldOut);
            *still_held_out += usize::from(case.part() == Some(CasePart::HeldOut));
        }
        assert_eq!(counts.len(), 4);
        for (kind, (all, held_out, still_held_out)) in counts {
            assert!(held_out * 3 >= all && (all - held_out) * 3 >= all, "{kind:?}: {held_out} of {all}");
            assert!(still_held_out * 4 >= all, "{kind:?}: {still_held_out} of {all}");
        }
        assert_eq!(CASES[0].part(), None);
    }
}

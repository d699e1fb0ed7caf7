//! Proving ground: servers as other people write and configure them, each with its right verdict. A
//! case's file names the measurement, other than weir's, that proves the verdict. Its first line has the kind, the
//! right verdicts and the requirements of the case.
//!
//! The analyser's results on the held-out part may be counted, but not read.

use std::sync::LazyLock;

use record::document::table::{KeySpec, ListForm, TableValues, ValueForm, key, read_document, required};
use record::document::{Problems, TomlDocument};
use record::invalid_value;
use record::problem::InvalidValue;

use super::cases::{CaseKind, Requirement, TestCase};
use crate::scenario::keys::CPUS_MAX;

macro_rules! files {
    ($($name:ident)*) => {
        &[$((stringify!($name), include_str!(concat!("foreign/", stringify!($name), ".toml")))),*]
    };
}

/// All cases of the proving ground. A test parses each file, so none is left out here.
pub static FOREIGN: LazyLock<Vec<TestCase>> =
    LazyLock::new(|| FILES.iter().filter_map(|(name, file)| parse_case(name, file).ok()).collect());

/// Texts of a case, or one of them without the array.
const TEXTS: ValueForm = ValueForm::List(ListForm {
    min: 0,
    max: 8,
    has_numbers: false,
    takes_one: true,
    example: "[\"go\", \"nginx\"]",
});

/// Keys of the first line of a case.
const LINE: &[KeySpec] = &[required("case", ValueForm::Table(CASE), "The case")];

const CASE: &[KeySpec] = &[
    required("kind", ValueForm::Text, "Kind: the name of a `CaseKind`"),
    required("right", TEXTS, "Right verdicts, the best first"),
    required("needs", TEXTS, "Programs that the case needs, and files by their paths"),
    key("cpus", ValueForm::Count(1, CPUS_MAX), "CPUs that the case needs"),
    key("examined", ValueForm::Flag, "A person has examined a record of the case because of a wrong verdict"),
];

/// Parses the first line of a case's file.
fn parse_case(name: &'static str, file: &'static str) -> Result<TestCase, InvalidValue> {
    let line = file.lines().next().unwrap_or_default();
    let (document, mut problems) = (TomlDocument::parse(line), Problems::default());
    let values = read_document(&document, LINE, &mut problems);
    if let Some(problem) = document.all_problems(name, problems).first() {
        return Err(InvalidValue::new(problem));
    }
    let case = values.table("case").ok_or_else(|| invalid_value!("it has no case"))?;
    let kind = CaseKind::ALL.into_iter().find(|kind| case.text("kind") == Some(kind.name()));
    let right = static_texts(case, "right");
    let (verdict, also_right) =
        right.split_first().ok_or_else(|| invalid_value!("right: a verdict is needed"))?;
    let need = |text: &'static str| match text.starts_with('/') {
        true => Requirement::File(text),
        false => Requirement::Program(text),
    };
    let mut requirements: Vec<_> = static_texts(case, "needs").into_iter().map(need).collect();
    let cpus = case.integer("cpus").and_then(|cpus| u32::try_from(cpus).ok());
    requirements.extend(cpus.map(Requirement::Cpus));
    Ok(TestCase {
        verdict,
        also_right: also_right.to_vec().into(),
        name,
        kind: kind.ok_or_else(|| invalid_value!("kind: none of healthy, single cause, decoy, two causes"))?,
        requirements: requirements.into(),
        is_examined: case.is_set("examined"),
        file,
    })
}

/// Returns the texts of a key for ever: cases are static, and each is read once.
fn static_texts(case: &TableValues, key: &str) -> Vec<&'static str> {
    let texts = case.text_or_list(key).unwrap_or_default();
    texts.into_iter().map(|text| &*text.leak()).collect()
}

const FILES: &[(&str, &str)] = files! {
    go_open node_open uvicorn_open java_open nginx_static_open nginx_go_proxy_open haproxy_two_nodes_open
    node_cluster_poisson go_think_time go_connection_per_request_open slow_app_stranger_open
    node_small_loss_open nginx_large_bodies_open go_quota_unused_open haproxy_maxconn_unused_open
    haproxy_four_slow_origins uvicorn_async_sleep node_timer nginx_far_link go_idle_connections
    slow_app_stranger_closed java_many_sleepers nginx_limit_rate go_delay_misses_objective go_semaphore
    go_pool_of_four java_four_threads nginx_limit_req go_mutex_sleep uvicorn_sync_sleep python_serial_sleep
    node_cpu uvicorn_cpu python_gil nginx_gzip go_both_cpus node_cluster_both_cpus go_kernel_reads
    nginx_connection_per_request node_full_think_time node_full_small_loss node_gc
    python_full_misses_objective go_mutex_compute nginx_busy_python nginx_busy_python_unix
    go_proxy_busy_node haproxy_uneven_origins haproxy_maxconn_busy_origin nginx_node_semaphore_origin
    haproxy_maxconn_two_origins haproxy_maxconn_unix nginx_out_of_ports haproxy_out_of_ports
    node_cluster_worker_quota go_quota nginx_large_shaped loopback_shaped nginx_slow_readers go_loss
    go_fd_limit python_nagle python_accept_backlog python_page_cache go_log_dsync two_backlog_and_thread
    two_ports_and_busy_origin two_descriptors_and_thread two_loss_and_link apache_event_open
    lighttpd_poisson_open caddy_proxy_think_time varnish_hits_open java_garbage_open gunicorn_threads_open
    nginx_php_fpm_open puma_open asyncio_log_of_errors_open node_workers_busy_stranger_open
    apache_idle_connections_open node_thread_pool_computes go_one_processor_of_two
    nginx_php_fpm_four_children haproxy_origin_quota node_token_bucket python_urandom_processes
    gunicorn_four_sync_workers varnish_pass_busy_perl caddy_max_conns node_stream_of_chunks
    java_uploads_narrow_link php_busy_neighbours node_backlog_during_pauses asyncio_fd_limit
    node_out_of_ports apache_piped_log java_synchronized puma_uploads_lost node_uploads_small_window
    java_nagle two_backlog_and_quota two_descriptors_and_semaphore two_window_and_loss two_link_and_quota
    tornado_poisson_open squid_hits_open tomcat_think_time h2o_far_files_open mod_php_time_wait_open
    erlang_gen_server erlang_inets_nagle nginx_lua_both_workers tinyproxy_out_of_ports trafficserver_quota
    squid_rewrite_helpers twisted_connection_per_request h2o_tomcat_four_threads aiohttp_gateway_latency
    mod_php_busy_api caddy_gzip_files_open haproxy_starman_poisson nginx_microcache_gunicorn_open
    java_pollers_open starman_think_time nginx_chatty_neighbour_open flask_sleeps_open
    apache_php_fpm_think_time puma_gvl_computes starman_workers_compute gunicorn_reads_proc
    java_blocking_queue_pool apache_prefork_seven_workers apache_proxy_busy_puma
    lighttpd_gunicorn_thread_pool apache_proxy_pool_max varnish_far_origin java_journal_force
    java_slow_readers nginx_proxy_fd_limit uvicorn_batch_neighbour haproxy_maxconn_far_origin
    java_quota_full_pool node_json_large_bodies varnish_uncacheable_serial nginx_time_wait_open
    php_session_lock java_gc_thrash two_descriptors_and_throttle two_backlog_and_workers two_link_and_thread
    two_nagle_and_loss warp_poisson_open nginx_uwsgi_think_time gevent_memcached_open sinatra_thin_open
    microhttpd_mutex_table hunchentoot_both_cpus go_redis_lua_script httplib_six_threads
    go_postgres_pool_of_two evhttp_journal_thread_open mojolicious_blocking_client
    haproxy_waitress_four_threads go_postgres_row_lock two_link_and_licences httpuv_two_writes
    mojolicious_log_pipe webrick_log_pipe cheroot_sqlite_commit go_dropped_log_lines node_background_fsync
    caddy_java_three_threads caddy_four_of_many_threads perl_fork_flock lighttpd_cgi_both_cpus
    php_log_pipe_open cheroot_sqlite_commit_open poco_stuck_audit_trail jetty_stuck_audit_log uwsgi_log_pipe
    perl_http_daemon_two_writes tcl_two_writes nim_random_sleep ocaml_short_backlog
    d_thread_per_request_mutex cpp_thread_per_request apache_balancer_pages mini_httpd_cgi_forks
    nghttpd_far_uploads_h2_window stunnel_rsa_handshakes stunnel_new_sessions_open guile_serial_pages
    swipl_mutex_rules lighttpd_kbytes_per_second racket_open yaws_quota uwsgi_beside_forking_shell
    tornado_stalls_open ruby_fork_large_catalogue python_busy_thread_gil java_spinning_matcher
    java_ledger_lock_three_quarters java_cold_cache_open gunicorn_recycled_workers go_reindex_poisson_open
    erlang_four_printers_busy apache_python_cgi varnish_synth_one_connection socat_shell_per_connection
    rust_thread_per_request_sleeps php_shell_exec_awk ocaml_polls_without_waiting node_h2_uploads_window
    nim_forking_neighbour h2o_tiny_file_sixty go_spinning_feed_delay go_h2_uploads_narrow_link
    caddy_respond_ten c_spinning_doorbell_licences go_three_tickets tcl_one_loop php_workers_compute
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::case_part::{CasePart, SPLIT_SEED, experiment_text};
    use super::super::cases::CASES;
    use super::super::cases::tests::CODES;
    use super::*;

    #[test]
    fn every_case_is_an_experiment_with_known_verdicts_and_a_unique_name() {
        for (name, file) in FILES {
            assert!(parse_case(name, file).is_ok(), "{name}: {:?}", parse_case(name, file));
        }
        assert_eq!(FOREIGN.len(), FILES.len());
        for (at, case) in FOREIGN.iter().enumerate() {
            for verdict in std::iter::once(&case.verdict).chain(&*case.also_right) {
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
        for case in &*FOREIGN {
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
